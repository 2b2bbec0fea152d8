"""Every test of a server runs on both transports."""

from __future__ import annotations

from tests.transports import transport

__all__ = ["transport"]
