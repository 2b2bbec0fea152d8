"""Reads answers in small steps, so that one receiver cannot keep the event loop to itself.

The HTTP library parses all that one read brings before anybody else gets a turn. A read of 64 KiB may hold thousands of
chunks or interim answers (1xx), which take more than a second. It also reads interim answers for as long as they come.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpcore2
import httpx2

from cloudgraft.sdk.errors import InternalError

__all__ = ["SteppedTransport", "limited_headers"]

_STEP: Final = 4096  # bytes of one read
_HEADER_BYTES: Final = 128 * 1024  # of one answer, interim ones included; the library takes 100 KiB for one of them


class SteppedTransport(httpx2.AsyncHTTPTransport):
    """As httpx's own, with small reads."""

    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=context, trust_env=False)
        # httpx has no parameter for the backend.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_SteppedBackend(),
        )


@contextmanager
def limited_headers() -> Iterator[None]:
    """Within it only the headers of one answer are read; raises InternalError when they do not end."""
    token = _left.set([_HEADER_BYTES])
    try:
        yield
    finally:
        _left.reset(token)


_left: ContextVar[list[int] | None] = ContextVar("cloudgraft_http_header_bytes", default=None)


class _SteppedBackend(httpcore2.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _SteppedStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _SteppedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as above
        data = await self._inner.read(min(max_bytes, _STEP), timeout)  # others have their turn before it returns
        left = _left.get()
        if left is not None:
            left[0] -= len(data)
            if left[0] < 0:
                raise InternalError(f"the receiver's answer has more than {_HEADER_BYTES >> 10} KiB of headers")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return _SteppedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
