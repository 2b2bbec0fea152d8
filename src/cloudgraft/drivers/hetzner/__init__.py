"""Servers of Hetzner Cloud."""

from __future__ import annotations

__all__: list[str] = []
