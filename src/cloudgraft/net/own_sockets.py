"""Finds the connections that a library in this process has accepted on a port.

gRPC accepts connections by itself, limits their number, and then refuses whoever comes next, be it the autoscaler. It
has no way to close one of its connections. The kernel has: a socket can be shut down through a duplicate of its
descriptor, and gRPC then sees the other side hang up.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["accepted", "count_descriptors", "hang_up"]

_DESCRIPTORS: Final = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"

Peer = tuple[str, int]  # address and port


def count_descriptors() -> int:
    """How many files and sockets this process has open; 0 where that is not known."""
    return len(_descriptors())


def accepted(port: int) -> dict[Peer, int]:
    """The connections that were accepted on a port: their peers, and their descriptors at this moment."""
    found: dict[Peer, int] = {}
    for descriptor in _descriptors():
        with _duplicate(descriptor) as connection:
            peer = _peer(connection, port)
        if peer is not None:
            found[peer] = descriptor
    return found


def hang_up(descriptor: int, peer: Peer, port: int) -> bool:
    """Ends a connection, if the descriptor still is the one to that peer."""
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
    """The same socket under a number of our own, which nobody else can close and use for another."""
    try:
        number = os.dup(descriptor)
    except OSError:  # closed meanwhile
        yield None
        return
    try:
        connection = socket.socket(fileno=number)
    except OSError:  # a file, or a pipe
        os.close(number)
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
