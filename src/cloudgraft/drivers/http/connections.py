"""Connections to one receiver, made anew when the files of TLS change."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from cloudgraft.drivers.http.options import Options
from cloudgraft.drivers.http.tls import Tls
from cloudgraft.net.stepped_http import SteppedTransport

__all__ = ["Connections"]

_MOST: Final = 64  # at a time; the engine makes fewer calls
_IDLE: Final = 4.0  # seconds; less than servers wait before they close a connection that is not used


@dataclass(slots=True, eq=False)
class _Generation:
    """Connections that were made with the same files."""

    context: ssl.SSLContext | None
    http: httpx2.AsyncClient
    users: int = 0


class Connections:
    """Lends a client. One that is in use when the files change is closed after its last call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tls = Tls(options) if options.is_encrypted else None
        self._newest: _Generation | None = None

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client for one call. Raises PreconditionError when the files of TLS cannot be used."""
        generation = await self._current()
        generation.users += 1
        try:
            yield generation.http
        finally:
            generation.users -= 1
            if generation is not self._newest and not generation.users:
                await generation.http.aclose()

    async def close(self) -> None:
        """Closes what is open."""
        newest, self._newest = self._newest, None
        if newest is not None and not newest.users:
            await newest.http.aclose()

    async def _current(self) -> _Generation:
        context = self._tls.current() if self._tls is not None else None
        old = self._newest
        if old is not None and old.context is context:
            return old
        new = self._newest = _Generation(context, self._open(context))
        if old is not None and not old.users:
            await old.http.aclose()
        return new

    def _open(self, context: ssl.SSLContext | None) -> httpx2.AsyncClient:
        seconds = self._options.timeout.total_seconds()
        connect = min(seconds, self._options.connect_timeout.total_seconds())
        limits = httpx2.Limits(max_connections=_MOST, max_keepalive_connections=_MOST, keepalive_expiry=_IDLE)
        tls = context if context is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx2.AsyncClient(
            transport=SteppedTransport(tls, limits=limits),
            trust_env=False,  # no proxy, no .netrc, no authorities that the environment brings along
            follow_redirects=False,
            timeout=httpx2.Timeout(seconds, connect=connect),
        )
