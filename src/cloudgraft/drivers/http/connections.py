"""Manages connections to one receiver: reloads TLS files, and records how far a call got."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from cloudgraft.drivers.common.secrets import Stamp, stamp
from cloudgraft.drivers.http.options import Options
from cloudgraft.net.stepped_http import SteppedTransport
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError

# -- TLS ---------------------------------------------------------------------------------------------------------------
# Our side of TLS: the trusted CA and our own certificate, reloaded when their files change.

log: Final = logging.getLogger("cloudgraft.drivers.http")


class Tls:
    """The TLS settings of connections. New files apply to new connections; open ones continue."""

    def __init__(self, options: Options) -> None:
        self._options = options
        files = (options.ca_file, options.cert_file, options.key_file)
        self._paths = tuple(path for path in files if path is not None)
        self._seen: Stamp | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """Returns the same object until the files change.

        Raises PreconditionError when the files cannot be used. After the first success, unusable new files are only
        logged, and the old ones stay: half a rotation must not stop a cloud.
        """
        now = stamp(*self._paths)
        if self._context is not None and now == self._seen:
            return self._context
        try:
            self._context = self._load()
        except CloudgraftError as error:
            if self._context is None:
                raise
            log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})
        self._seen = now
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cert, key = self._options.cert_file, self._options.key_file
        if cert is not None and key is not None:
            try:
                context.load_cert_chain(cert, key, password=_no_passphrase)
            except ssl.SSLError:
                # Without its cause: a message must not show anything of a key.
                raise PreconditionError(
                    f"certFile {cert} and keyFile {key} are not a PEM certificate and its key"
                ) from None
            except OSError as error:
                raise PreconditionError(f"certFile {cert} or keyFile {key}: {error.strerror}") from None
        return context

    def _trusting(self) -> ssl.SSLContext:
        ca = self._options.ca_file
        try:
            return ssl.create_default_context(cafile=ca)
        except ssl.SSLError:
            raise PreconditionError(f"caFile {ca} holds no PEM certificate") from None
        except OSError as error:
            raise PreconditionError(f"caFile {ca}: {error.strerror}") from None


def _no_passphrase() -> str:
    """Called for a key with a passphrase. OpenSSL would ask for it on the terminal."""
    raise PreconditionError("keyFile is protected by a passphrase: store it without one, mode 0600")


# -- connections -------------------------------------------------------------------------------------------------------

_MOST: Final = 64  # at a time; the engine makes fewer calls
_IDLE: Final = 4.0  # seconds; less than servers wait before they close an idle connection


@dataclass(slots=True, eq=False)
class _Generation:
    """Connections that use the same files."""

    context: ssl.SSLContext | None
    http: httpx2.AsyncClient
    users: int = 0


class Connections:
    """Lends HTTP clients. When the files change, a client in use is closed after its last call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tls = Tls(options) if options.is_encrypted else None
        self._newest: _Generation | None = None

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Yields a client for one call. Raises PreconditionError when the TLS files cannot be used."""
        generation = await self._current()
        generation.users += 1
        try:
            yield generation.http
        finally:
            generation.users -= 1
            if generation is not self._newest and not generation.users:
                await generation.http.aclose()

    async def close(self) -> None:
        """Closes all connections."""
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
            trust_env=False,  # no proxy, no .netrc and no CAs from the environment
            follow_redirects=False,
            timeout=httpx2.Timeout(seconds, connect=connect),
        )


# -- how far a call got ------------------------------------------------------------------------------------------------
# Whether anything was sent, and whether a connection was left half open.


class Progress:
    """Progress of one attempt. Its :meth:`note` is the ``trace`` extension of a request, called at every step."""

    def __init__(self) -> None:
        self.was_sent = False  # at least in part
        self._half_made: Any = None  # a stream of the library

    async def note(self, step: str, info: Mapping[str, Any]) -> None:
        """Called by the library, at the beginning and at the end of each step."""
        match step.split("."):
            case [_, "connect_tcp", "complete"]:
                self._half_made = info["return_value"]
            case [_, "start_tls", "complete"]:
                self._half_made = None
            case [_, "send_request_headers", "started"]:
                self._half_made = None
                self.was_sent = True

    async def end(self) -> None:
        """Closes the stream of a call that was cancelled during the TLS handshake: the library does not."""
        if self._half_made is not None:
            stream, self._half_made = self._half_made, None
            await stream.aclose()
