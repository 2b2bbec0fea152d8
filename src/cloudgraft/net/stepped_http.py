"""Reads HTTP responses in small steps, so that one server cannot block the event loop.

The HTTP library parses all bytes of one read before other tasks run. A read of 64 KiB may hold thousands of chunks or
interim responses (1xx), which take more than a second. It also reads interim responses for as long as they come.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpcore2
import httpx2

_STEP: Final = 4096  # bytes of one read
_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20)  # httpx's defaults
_HEADER_BYTES: Final = 128 * 1024  # of one response, including interim ones; the library allows 100 KiB for each


class TooManyHeadersError(Exception):
    """The headers of a response do not end."""


@contextmanager
def limited_headers() -> Iterator[None]:
    """Reads only the headers of one response in this block; raises TooManyHeadersError when they do not end."""
    token = _left.set([_HEADER_BYTES])
    try:
        yield
    finally:
        _left.reset(token)


_left: ContextVar[list[int] | None] = ContextVar("cloudgraft_http_header_bytes", default=None)


class SteppedBackend(httpcore2.AnyIOBackend):
    """Opens connections that read in small steps."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """As the base class."""
        return _SteppedStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class SteppedTransport(httpx2.AsyncHTTPTransport):
    """As httpx's own, with small reads and without proxies."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        limits: httpx2.Limits = _LIMITS,
        backend: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        """``backend`` may select the addresses to connect to."""
        super().__init__(verify=context, trust_env=False, limits=limits)
        _set_backend(self, backend or SteppedBackend())


def read_in_steps(client: httpx2.AsyncClient) -> None:
    """Makes an existing client read in small steps, also through the proxies of its environment."""
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - as below
        if isinstance(transport, httpx2.AsyncHTTPTransport):
            _set_backend(transport, SteppedBackend())


def _set_backend(transport: httpx2.AsyncHTTPTransport, backend: httpcore2.AsyncNetworkBackend) -> None:
    transport._pool._network_backend = backend  # noqa: SLF001 - httpx has no parameter for it


class _SteppedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as above
        # Let other tasks run here: a TLS stream returns already decrypted bytes without waiting.
        await asyncio.sleep(0)
        data = await self._inner.read(min(max_bytes, _STEP), timeout)
        left = _left.get()
        if left is not None:
            left[0] -= len(data)
            if left[0] < 0:
                raise TooManyHeadersError(f"the answer has more than {_HEADER_BYTES >> 10} KiB of headers")
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
