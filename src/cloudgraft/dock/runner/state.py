"""What outlives a connection: the driver, its operations, its results and the classes that it knows."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Protocol

from cloudgraft.dock.runner.classes import Classes, Source
from cloudgraft.dock.runner.dial import End
from cloudgraft.dock.runner.docked import Docked
from cloudgraft.dock.runner.options import RunnerOptions
from cloudgraft.dock.runner.unacknowledged import Keeper
from cloudgraft.dock.runner.work import Workshop

__all__ = ["Crew", "Session"]

log = logging.getLogger("cloudgraft.dock")


class Session(Source, Protocol):
    """One connection."""

    async def run(self) -> End:
        """Stays until it is over."""

    def announce(self, reason: str) -> None:
        """Tells the hub that we will leave."""

    async def leave(self) -> None:
        """Takes leave of the hub, after all that waits to be told."""


class Crew:
    """Everything that a connection works with, and which connection there is."""

    def __init__(self, docked: Docked, options: RunnerOptions) -> None:
        settings = options.settings
        self.docked = docked
        self.options = options
        self.instance_id = settings.instance_id or secrets.token_hex(8)
        self.keeper = Keeper(most=settings.kept_results, most_bytes=settings.kept_bytes)
        self.classes = Classes(docked.use)
        self.workshop = Workshop(docked.driver, self.classes, places=settings.max_in_flight)
        self.current: Session | None = None
        self.session_id = ""
        self.since: float | None = None  # by the event loop's clock; None: no hub has welcomed us
        self.connected = asyncio.Event()
        self.connections = 0

    def attach(self, session: Session) -> None:
        """From now on results go this way."""
        self.current = session

    def welcomed(self, session_id: str) -> None:
        """The hub knows us: classes can be fetched."""
        self.classes.source = self.current
        self.session_id = session_id
        self.since = asyncio.get_running_loop().time()
        self.connections += 1
        self.connected.set()
        log.info("connected to %s: serving %s", self.options.address, self.options.key)

    def detach(self) -> float:
        """The connection is over; how many seconds it lasted."""
        since, self.since = self.since, None
        self.current = self.classes.source = None
        self.session_id = ""
        self.connected.clear()
        self.workshop.abandon()
        return 0.0 if since is None else asyncio.get_running_loop().time() - since
