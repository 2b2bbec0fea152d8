"""Bare metal, switched on and off through its own controllers, which speak Redfish."""

from __future__ import annotations

__all__: list[str] = []
