"""Limits what urllib3 reads, and tells whether a failed request was sent."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError, ProxyError

from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.list_budget import spend_bytes

__all__ = ["LARGEST_ANSWER", "POOLS", "LimitedResponse", "root_cause", "was_never_sent"]


# -- limits ------------------------------------------------------------------------------------------------------------
# Limits an answer as a whole, in time and in bytes, as urllib3 and whatever stands on it does not. Its read timeout is
# for each piece of an answer. A server, or something on the way, that sends a byte now and then would hold a thread for
# ever; and the driver has few of them. Here the read timeout is for all of an answer, with its headers. An answer has a
# largest size, and counts for the list that it is read for (:mod:`cloudgraft.sdk.list_budget`).

LARGEST_ANSWER: Final = 32 * 1024 * 1024  # bytes: a page of a thousand machines has about ten million


class LimitedResponse(http.client.HTTPResponse):
    """An answer for which the socket's timeout counts as a whole; then TimeoutError is raised, as for a piece."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        """What has been read of it so far is nothing."""
        super().__init__(sock, *args, **more)
        seconds = sock.gettimeout()
        if seconds is not None:
            self.fp.close()
            self.fp = io.BufferedReader(_Limited(sock, seconds))


class _Limited(io.RawIOBase):
    def __init__(self, sock: socket.socket, seconds: float) -> None:
        super().__init__()
        self._sock = sock
        self._pieces = sock.makefile("rb", buffering=0)
        self._until = time.monotonic() + seconds
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out: the answer came too slowly")
        self._sock.settimeout(left)
        size = self._pieces.readinto(buffer)
        self._read += size or 0
        if self._read > LARGEST_ANSWER:
            raise InternalError(f"an answer of the cloud has more than {LARGEST_ANSWER >> 20} MiB")
        spend_bytes(size or 0)
        return size

    def close(self) -> None:
        self._pieces.close()
        super().close()


class _Connection(HTTPConnection):
    response_class = LimitedResponse


class _SecureConnection(HTTPSConnection):
    response_class = LimitedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


POOLS = {"http": _Pool, "https": _SecurePool}  # as `pool_classes_by_scheme` of a PoolManager


# -- failures ----------------------------------------------------------------------------------------------------------
# Failures of the library urllib3, on which those of many a cloud stand: whether anything was sent before one.

# Another trouble with TLS may come at any time. So may a ProxyError: urllib3 calls every connection that broke so, when
# it led through a proxy, even after the request was sent. What is behind it tells.
_BEFORE: Final = (NewConnectionError, ConnectTimeoutError, ssl.SSLCertVerificationError)
_NO_TUNNEL: Final = "Tunnel connection failed"  # how http.client begins, when a proxy refuses to CONNECT


def root_cause(error: BaseException) -> BaseException:
    """What happened, in the place of what was wrapped around it."""
    cause = error
    while True:
        inner = _inner(cause)
        if not isinstance(inner, (HTTPError, OSError)):
            return cause
        cause = inner


def was_never_sent(cause: BaseException) -> bool:
    """Whether it is certain that nothing of the request left this machine. ``cause`` is of :func:`root_cause`."""
    return isinstance(cause, _BEFORE) or (isinstance(cause, OSError) and str(cause).startswith(_NO_TUNNEL))


def _inner(cause: BaseException) -> object:
    if isinstance(cause, MaxRetryError):
        return cause.reason
    if isinstance(cause, ProxyError):
        return cause.original_error
    return next(iter(cause.args), None)
