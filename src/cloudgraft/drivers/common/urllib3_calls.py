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

# -- limits ------------------------------------------------------------------------------------------------------------
# urllib3 and libraries built on it do not limit a response as a whole: the read timeout applies to each piece. A server
# or proxy that sends a byte now and then would block a thread for ever, and the driver has few of them. Here the read
# timeout applies to the whole response with its headers. A response has a maximum size, and counts towards the budget
# of the list that it is read for (:mod:`cloudgraft.sdk.list_budget`).

LARGEST_ANSWER: Final = 32 * 1024 * 1024  # bytes: a page of a thousand machines has about ten million


class LimitedResponse(http.client.HTTPResponse):
    """A response to which the socket's timeout applies as a whole; raises TimeoutError, as for a piece."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        """Starts the time of the whole response."""
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
# Failures of urllib3, which the libraries of many clouds use: whether anything was sent before the failure.

# Other TLS errors may occur at any time. So may a ProxyError: urllib3 raises it for every broken connection through a
# proxy, even after the request was sent. Its cause decides.
_BEFORE: Final = (NewConnectionError, ConnectTimeoutError, ssl.SSLCertVerificationError)
_NO_TUNNEL: Final = "Tunnel connection failed"  # the start of http.client's message when a proxy refuses CONNECT


def root_cause(error: BaseException) -> BaseException:
    """Returns the innermost cause of a wrapped error."""
    cause = error
    while True:
        inner = _inner(cause)
        if not isinstance(inner, (HTTPError, OSError)):
            return cause
        cause = inner


def was_never_sent(cause: BaseException) -> bool:
    """Returns whether certainly nothing of the request was sent. ``cause`` comes from :func:`root_cause`."""
    return isinstance(cause, _BEFORE) or (isinstance(cause, OSError) and str(cause).startswith(_NO_TUNNEL))


def _inner(cause: BaseException) -> object:
    if isinstance(cause, MaxRetryError):
        return cause.reason
    if isinstance(cause, ProxyError):
        return cause.original_error
    return next(iter(cause.args), None)
