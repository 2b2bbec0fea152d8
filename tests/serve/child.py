"""What runs in a process that was forked for a test: a `cloudgraft` command, exactly as from a shell."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

# Loaded before the fork, so that a start takes milliseconds.
from cloudgraft.app import engine_wiring, reload, sidecars
from cloudgraft.cli import serve, simcloud
from cloudgraft.cli.main import main
from cloudgraft.server import serve as serving
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.store.databases import postgres

__all__ = [
    "HttpServer",
    "engine_wiring",
    "postgres",
    "reload",
    "run",
    "run_in_rollout",
    "serve",
    "serving",
    "sidecars",
    "simcloud",
]


def run(log: Connection, arguments: list[str]) -> None:
    """`cloudgraft ARGUMENTS`, with its log in the pipe."""
    os.dup2(log.fileno(), 2)
    log.close()
    sys.argv = ["cloudgraft", *arguments]
    main()


def run_in_rollout(log: Connection, arguments: list[str], rollout: str) -> None:
    """`CLOUDGRAFT_ROLLOUT=… cloudgraft ARGUMENTS`, as in a pod."""
    os.environ["CLOUDGRAFT_ROLLOUT"] = rollout
    run(log, arguments)
