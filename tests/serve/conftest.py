"""A real PostgreSQL for replicas."""

from __future__ import annotations

from tests.postgres import postgres

__all__ = ["postgres"]
