"""Closes connections that flood a gRPC listener, and untrusted ones when it is full.

gRPC can do neither. It counts the calls of all connections together, and accepts connections until the autoscaler
cannot connect.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final
from urllib.parse import unquote

from cloudgraft.net import connections
from cloudgraft.net.connections import choose
from cloudgraft.net.metrics import FLOOD, NOT_ALLOWED, TOO_MANY, Refuse

_EVERY: Final = 0.2  # seconds between two counts
_EVERY_WHEN_FULL: Final = 0.05
_LOOK_EVERY: Final = 5.0  # seconds between two scans of all descriptors, at most, when there are many
_PAUSE: Final = 0.02  # seconds between two scans of all descriptors, at least
_OLD: Final = 2  # times the limit: this many peers are remembered before closed ones are forgotten
_ROOM: Final = 2  # one part in this many of the connections is kept free for those that come between two counts
_PATIENCE: Final = 20  # refused calls of one connection that count as a flood, if they come within
_FLOOD_SECONDS: Final = 2.0


class ConnectionWatch:
    """Watches the connections to one port. It runs in the event loop of the listener."""

    def __init__(self, limit: int, refuse: Refuse, reason: str = NOT_ALLOWED) -> None:
        """``limit`` is the number of connections that gRPC accepts. ``reason`` is why calls are refused."""
        self._most = limit - limit // _ROOM
        self._refuse = refuse
        self._reason = reason
        self._port = 0
        self._trusted: set[str] = set()  # gRPC's names of peers; some may be closed
        self._most_trusted = limit * _OLD
        self._refused: dict[str, int] = {}  # refused calls in the last seconds, by peer
        self._forget_at = 0.0
        self._found: dict[connections.Peer, int] = {}  # descriptor by peer, in the order in which they were first seen
        self._looked = 0.0
        self._enough = self._most  # number of descriptors of the process from which on this port may have too many
        self._task: asyncio.Task[None] | None = None

    def trust(self, peer: str) -> None:
        """Trusts a peer that made an allowed call. Runs for every call, so it does little."""
        if peer not in self._trusted:
            self._trusted.add(peer)
            if len(self._trusted) > self._most_trusted:
                self._look()
                self._forget_closed()

    def refused(self, peer: str) -> None:
        """Counts a refused call of a peer; after many, closes the connection with all its queued calls."""
        self._refuse(self._reason)
        count = self._refused[peer] = self._refused.get(peer, 0) + 1
        if count >= _PATIENCE and self._hang_up(_parsed(peer)):
            self._refuse(FLOOD)

    def start(self, port: int) -> None:
        """Begins to watch."""
        self._port = port
        self._task = asyncio.create_task(self._run(), name="connection watch")

    def stop(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()

    def count(self) -> int:
        """The number of connections. May be called from any thread."""
        return len(connections.accepted(self._port)) if self._port else 0

    async def _run(self) -> None:
        pause = _EVERY
        while True:
            await asyncio.sleep(pause)
            self._forget_refused()
            # Counting all descriptors is quick. They are scanned only when this port may have too many connections.
            total = connections.count_descriptors()
            is_old = time.monotonic() - self._looked > _LOOK_EVERY and total > self._most
            closed = self._make_room() if total > self._enough or is_old else 0
            pause = _EVERY_WHEN_FULL if closed else _EVERY
            if total > self._enough or is_old:
                self._enough = total - closed + max(0, self._most - len(self._found))

    def _forget_refused(self) -> None:
        now = time.monotonic()
        if now >= self._forget_at:
            self._refused.clear()
            self._forget_at = now + _FLOOD_SECONDS

    def _make_room(self) -> int:
        """Closes untrusted connections above the limit; returns how many."""
        self._look()
        trusted = self._forget_closed()
        untrusted = {peer: peer[0] for peer in self._found if peer not in trusted}
        doomed = choose(untrusted, len(self._found) - self._most)
        closed = sum(self._hang_up(peer) for peer in doomed)
        for _ in range(closed):
            self._refuse(TOO_MANY)
        return closed

    def _forget_closed(self) -> set[connections.Peer]:
        """Forgets trusted peers that the latest scan did not find; returns the rest."""
        trusted = {name: peer for name in self._trusted if (peer := _parsed(name)) in self._found}
        self._trusted = set(trusted)
        return set(trusted.values())

    def _hang_up(self, peer: connections.Peer) -> bool:
        """Closes a connection; returns False if it is already closed, or was not found yet."""
        if peer not in self._found and time.monotonic() - self._looked > _PAUSE:
            self._look()
        descriptor = self._found.pop(peer, None)
        return descriptor is not None and connections.hang_up(descriptor, peer, self._port)

    def _look(self) -> None:
        found = connections.accepted(self._port)
        self._found = {peer: found[peer] for peer in [*(old for old in self._found if old in found), *found]}
        self._looked = time.monotonic()


def _parsed(name: str) -> connections.Peer:
    """Converts gRPC's name of a peer, such as ``ipv6:%5B::1%5D:4711``, to the kernel's form."""
    host, _, port = unquote(name.partition(":")[2]).rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdigit() else 0
