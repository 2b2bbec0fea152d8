"""Keeps gRPC from taking part in forks: the database is started again while clients call, and a child may hang then."""

from __future__ import annotations

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
