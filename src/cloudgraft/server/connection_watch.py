"""Keeps room on a gRPC listener: closes connections that have proved nothing before gRPC refuses new ones."""

from __future__ import annotations

import threading
from typing import Final
from urllib.parse import unquote

from cloudgraft.net import own_sockets
from cloudgraft.net.connections import choose
from cloudgraft.net.metrics import TOO_MANY, Refuse

__all__ = ["ConnectionWatch"]

_EVERY: Final = 0.2  # seconds
_ROOM: Final = 4  # this part of the places is kept free


class ConnectionWatch:
    """Watches one port, in a thread of its own: it must work also when the event loop is busy."""

    def __init__(self, limit: int, refuse: Refuse) -> None:
        """``limit`` is how many connections gRPC accepts."""
        self._limit = limit
        self._refuse = refuse
        self._port = 0
        self._trusted: set[str] = set()
        self._ages: dict[own_sockets.Peer, int] = {}  # in the order in which they were first seen
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def trust(self, peer: str) -> None:
        """An allowed call came from there, by gRPC's name for it. Called for every call, so it does little."""
        self._trusted.add(peer)

    def start(self, port: int) -> None:
        """Begins to watch."""
        self._port = port
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="connection watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; the thread goes by itself."""
        self._stop.set()

    def count(self) -> int:
        """How many connections there are."""
        return len(own_sockets.accepted(self._port)) if self._port else 0

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            # All descriptors are counted, which is quick, before any is looked at.
            if own_sockets.count_descriptors() > self._most:
                self._make_room()

    @property
    def _most(self) -> int:
        return self._limit - self._limit // _ROOM

    def _make_room(self) -> None:
        found = own_sockets.accepted(self._port)
        self._ages = {peer: found[peer] for peer in [*(old for old in self._ages if old in found), *found]}
        trusted = {peer for peer in map(_parsed, tuple(self._trusted)) if peer in found}
        self._trusted = {name for name in tuple(self._trusted) if _parsed(name) in trusted}
        untrusted = {peer: peer[0] for peer in self._ages if peer not in trusted}
        for peer in choose(untrusted, len(found) - self._most):
            if own_sockets.hang_up(found[peer], peer, self._port):
                self._refuse(TOO_MANY)


def _parsed(name: str) -> own_sockets.Peer:
    """gRPC's name of a peer, such as ``ipv6:%5B::1%5D:4711``, as the kernel has it."""
    host, _, port = unquote(name.partition(":")[2]).rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdigit() else 0
