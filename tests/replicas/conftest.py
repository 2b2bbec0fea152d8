"""Loaded before any test of this folder, and before gRPC is used."""

from __future__ import annotations

import tests.replicas.no_fork_handlers  # noqa: F401
