"""Limits the connections of one listener. When there are too many, one of the least trusted goes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from cloudgraft.net.metrics import TOO_MANY, Refuse

__all__ = ["Connections", "LimitedSocket", "choose"]

_LOCAL: Final = "local"  # the address of all that come through a unix socket


def choose(untrusted: Mapping[Any, Hashable], count: int) -> list[Any]:
    """Which connections to close: the oldest of the addresses that have the most.

    ``untrusted`` maps connections, oldest first, to their addresses. A client that opens thousands loses its own.
    """
    by_address: dict[Hashable, list[Any]] = {}
    for connection, address in untrusted.items():
        by_address.setdefault(address, []).append(connection)
    sizes = Counter({address: len(some) for address, some in by_address.items()})
    taken: Counter[Hashable] = Counter()
    chosen = []
    for _ in range(min(count, len(untrusted))):
        address = max(sizes, key=lambda one: sizes[one])
        chosen.append(by_address[address][taken[address]])
        taken[address] += 1
        sizes[address] -= 1
    return chosen


class Connections:
    """The open connections of a listener that accepts them in Python. Safe to use from any thread."""

    def __init__(self, limit: int, refuse: Refuse) -> None:
        self.limit = limit
        self._refuse = refuse
        self._lock = threading.Lock()
        self._open: dict[socket.socket, Hashable] = {}
        self._trusted: set[socket.socket] = set()

    def __len__(self) -> int:
        with self._lock:
            self._forget_closed()
            return len(self._open)

    def add(self, connection: socket.socket, peer: object) -> None:
        """Notes a new connection, and closes another one when that makes too many."""
        with self._lock:
            if len(self._open) >= self.limit:
                self._forget_closed()
            self._open[connection] = _address(peer)
            excess = len(self._open) - self.limit
            untrusted = {one: self._open[one] for one in self._open if one not in self._trusted} if excess > 0 else {}
            doomed = choose(untrusted, excess)
            for one in doomed:
                del self._open[one]
        for one in doomed:
            self._refuse(TOO_MANY)
            with contextlib.suppress(OSError):  # it has just ended by itself
                one.shutdown(socket.SHUT_RDWR)  # whoever reads from it sees its end, and closes it

    def trust(self, connection: socket.socket) -> None:
        """The client has proved who it is: others go first."""
        with self._lock:
            if connection in self._open:
                self._trusted.add(connection)

    def close_all(self) -> None:
        """Ends every connection."""
        with self._lock:
            connections = list(self._open)
        for one in connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _forget_closed(self) -> None:
        for one in [one for one in self._open if one.fileno() < 0]:
            del self._open[one]
            self._trusted.discard(one)


class LimitedSocket(socket.socket):
    """A listening socket that notes each connection it accepts, before a handshake or a byte of it is read."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """As its base class does."""
        connection, peer = super().accept()
        self.connections.add(connection, peer)
        return connection, peer


def _address(peer: object) -> Hashable:
    host: object = next(iter(peer), _LOCAL) if isinstance(peer, Iterable) and not isinstance(peer, str) else _LOCAL
    return host if isinstance(host, Hashable) else _LOCAL
