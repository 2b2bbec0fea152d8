"""Every attack hits both transports."""

from __future__ import annotations
