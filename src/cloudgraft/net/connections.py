"""Limits and counts the connections of listeners. When there are too many, closes one of the least trusted."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge

from cloudgraft.sdk.common.ratelimit import RepeatLimit

# -- Metrics -----------------------------------------------------------------------------------------------------------


NOT_ALLOWED = "not_allowed"  # a call of a client whose certificate is not an allowed one
UNKNOWN = "unknown"  # a call without a certificate or token that the listener knows
TOO_MANY = "too_many"  # a connection that was closed because the listener had too many
TOO_SLOW = "too_slow"  # a connection that was closed because its handshake took too long
FLOOD = "flood"  # a connection that was closed because many of its calls were refused

Refuse = Callable[[str], None]  # counts a refusal by its reason


class ListenerMetrics:
    """The metrics of all listeners of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = prometheus_client.Counter(
            "cloudgraft_refused_clients",
            "Calls and connections refused, by listener and reason: not_allowed, unknown, too_many, too_slow, flood",
            ["listener", "reason"],
            registry=registry,
        )
        self._connections = Gauge(
            "cloudgraft_connections", "Open connections of a listener", ["listener"], registry=registry
        )
        self._limit = Gauge(
            "cloudgraft_connections_limit",
            "Connections that a listener may hold",
            ["listener"],
            registry=registry,
        )

    def refusals(self, listener: str) -> Refuse:
        """Counts refusals of that listener."""
        for reason in (NOT_ALLOWED, UNKNOWN, TOO_MANY, TOO_SLOW, FLOOD):
            self._refused.labels(listener, reason)

        def refuse(reason: str) -> None:
            self._refused.labels(listener, reason).inc()

        return refuse

    def watch(self, listener: str, count: Callable[[], int], limit: int) -> None:
        """Exports the number of connections of that listener."""
        self._connections.labels(listener).set_function(count)
        self._limit.labels(listener).set(limit)


# -- Connections that Python accepts -----------------------------------------------------------------------------------


_LOCAL: Final = "local"  # the address of all connections through a unix socket


def choose(untrusted: Mapping[Any, Hashable], count: int) -> list[Any]:
    """Selects the connections to close: the oldest of the addresses that have the most.

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


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    address: Hashable
    since: float
    is_greeted: bool = False  # has completed the handshake
    is_trusted: bool = False


class Connections:
    """The open connections of a listener that accepts them in Python, by descriptor. Thread-safe."""

    def __init__(self, limit: int, refuse: Refuse, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.refuse = refuse
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[int, _Connection] = {}

    def __len__(self) -> int:
        with self._lock:
            self._forget_closed()
            return len(self._open)

    def add(self, connection: socket.socket, peer: object) -> None:
        """Adds a new connection, and closes another one when there are too many."""
        new = _Connection(connection, _address(peer), self._clock())
        with self._lock:
            if len(self._open) >= self.limit:
                self._forget_closed()
            self._open.pop(connection.fileno(), None)  # so that the new one comes last
            self._open[connection.fileno()] = new
            untrusted = {number: one.address for number, one in self._open.items() if not one.is_trusted}
            doomed = [self._open.pop(number) for number in choose(untrusted, len(self._open) - self.limit)]
        for one in doomed:
            self.refuse(TOO_MANY)
            _hang_up(one.socket)

    def greet(self, descriptor: int) -> None:
        """Marks a client that has completed the handshake."""
        with self._lock:
            if descriptor in self._open:
                self._open[descriptor].is_greeted = True

    def trust(self, descriptor: int) -> None:
        """Marks an authenticated client: others are closed before it."""
        with self._lock:
            if descriptor in self._open:
                self._open[descriptor].is_trusted = True

    def close_ungreeted(self, seconds: float) -> None:
        """Closes connections whose handshake takes longer than that."""
        before = self._clock() - seconds
        with self._lock:
            self._forget_closed()
            late = [number for number, one in self._open.items() if not one.is_greeted and one.since < before]
            doomed = [self._open.pop(number) for number in late]
        for one in doomed:
            self.refuse(TOO_SLOW)
            _hang_up(one.socket)

    def close_all(self) -> None:
        """Closes every connection."""
        with self._lock:
            connections = list(self._open.values())
        for one in connections:
            _hang_up(one.socket)

    def _forget_closed(self) -> None:
        for number in [number for number, one in self._open.items() if one.socket.fileno() != number]:
            del self._open[number]


def _hang_up(connection: socket.socket) -> None:
    """Shuts the socket down: its reader sees the end, and closes it."""
    with contextlib.suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class LimitedSocket(socket.socket):
    """A listening socket that records each accepted connection before a handshake or a byte of it is read."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """As its base class does."""
        connection, peer = super().accept()
        self.connections.add(connection, peer)
        return connection, peer


def _address(peer: object) -> Hashable:
    host: object = next(iter(peer), _LOCAL) if isinstance(peer, Iterable) and not isinstance(peer, str) else _LOCAL
    return host if isinstance(host, Hashable) else _LOCAL


# -- Connections that a library accepts --------------------------------------------------------------------------------
# gRPC accepts connections by itself, limits their number, and then rejects any further client, even the autoscaler. It
# cannot close one of its connections. The kernel can: a socket can be shut down through a duplicate of its
# descriptor, and gRPC then sees the other side hang up.


_DESCRIPTORS: Final = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"

Peer = tuple[str, int]  # address and port


def count_descriptors() -> int:
    """The number of open files and sockets of this process; 0 where that is unknown."""
    return len(_descriptors())


def accepted(port: int) -> dict[Peer, int]:
    """The accepted connections of a port: their peers, and their current descriptors."""
    found: dict[Peer, int] = {}
    for descriptor in _descriptors():
        with _duplicate(descriptor) as connection:
            peer = _peer(connection, port)
        if peer is not None:
            found[peer] = descriptor
    return found


def hang_up(descriptor: int, peer: Peer, port: int) -> bool:
    """Ends a connection, if the descriptor still belongs to that peer."""
    with _duplicate(descriptor) as connection:
        if connection is None or _peer(connection, port) != peer:
            return False
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    return True


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 - thousands of times a minute
    except OSError:
        return []


@contextlib.contextmanager
def _duplicate(descriptor: int) -> Iterator[socket.socket | None]:
    """Duplicates the socket to a descriptor of our own, which no other code can close and reuse.

    A file is never duplicated: to close the duplicate would end the process's POSIX locks on that file. SQLite then
    counts as not using the journal, and the next reader beside us that closes it removes its write-ahead log.
    """
    try:
        number = os.dup(descriptor) if stat.S_ISSOCK(os.fstat(descriptor).st_mode) else -1
    except OSError:  # closed meanwhile
        number = -1
    if number < 0:
        yield None
        return
    try:
        connection = socket.socket(fileno=number)
    except OSError:  # replaced meanwhile: by a file perhaps, whose locks would end if this was closed
        yield None
        return
    with connection:
        yield connection


def _peer(connection: socket.socket | None, port: int) -> Peer | None:
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if connection.getsockname()[1] != port:
            return None
        host, peer_port = connection.getpeername()[:2]  # fails for the one that listens
    except OSError:
        return None
    return host.removeprefix("::ffff:"), peer_port


# -- Rate-limited log --------------------------------------------------------------------------------------------------
# For log lines that clients can cause.


class RateLimitedLog:
    """Writes one line a minute about each client. It says how many were dropped since the last one. Thread-safe."""

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._limit = RepeatLimit(clock=clock)

    def warning(
        self, message: str, *args: object, who: Hashable = None, extra: Mapping[str, object] | None = None
    ) -> None:
        """Writes the line, or counts it as dropped."""
        dropped = self._limit.admit(who)
        if dropped:
            more = message + " (and %d times more since the last such line)"
            self._logger.warning(more, *args, dropped, extra=extra)
        elif dropped is not None:
            self._logger.warning(message, *args, extra=extra)
