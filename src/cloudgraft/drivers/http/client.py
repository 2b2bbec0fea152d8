"""Calls a receiver: connections with reloaded TLS files, signed requests, limits of time and size, and retries."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import httpx2

from cloudgraft.drivers.common.secrets import Reloaded, SecretFile, trusting
from cloudgraft.drivers.http import contract
from cloudgraft.drivers.http.errors import SUCCESSES, failure, refusal
from cloudgraft.drivers.http.options import Options
from cloudgraft.net.stepped_http import SteppedTransport, TooManyHeadersError, limited_headers
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    PreconditionError,
    RateLimitedError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.list_budget import spend_bytes

# -- TLS ---------------------------------------------------------------------------------------------------------------


def _tls_context(options: Options) -> ssl.SSLContext:
    """Returns our side of TLS: the trusted CA and our own certificate."""
    context = trusting(options.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    cert, key = options.cert_file, options.key_file
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
        files = [path for path in (options.ca_file, options.cert_file, options.key_file) if path is not None]
        warning = "new TLS files cannot be used, the old ones stay"  # open connections continue in any case
        self._tls = Reloaded(partial(_tls_context, options), *files, warning=warning) if options.is_encrypted else None
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


_AGENT: Final = "cloudgraft"
_FEW_PIECES: Final = 1000  # chunks of a response that may have any size
_SMALLEST_PIECE: Final = 16  # bytes on average: each chunk takes as much time as some kilobytes at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request. ``target`` is below the base URL, encoded; ``what`` is for messages."""

    what: str
    method: str
    target: str
    until: float  # on the event loop's clock
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)  # holds secrets
    # Statuses besides success that are not an error for this call.
    welcome: frozenset[int] = frozenset()
    is_repeatable: bool = True  # whether repeating it is safe

    @property
    def is_change(self) -> bool:
        """Whether the call may change something."""
        return self.method != "GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete response."""

    status: int
    body: bytes = field(repr=False)


class Client:
    """Calls one receiver. Use it from one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._connections = Connections(options)
        self._running: set[asyncio.Task[Reply]] = set()
        self._is_closed = False
        self._hmac_key = _secret(options, "hmac_key_file", "hmacKeyFile", contract.SHORTEST_KEY)
        self._token = _secret(options, "token_file", "tokenFile", 1)

    async def call(self, call: Call) -> Reply:
        """Returns the response when its status is a success or accepted by the call; else raises the error."""
        if self._is_closed:
            raise UnavailableError(f"{call.what}: the driver is closed")
        # A separate task, so that close() can cancel it without cancelling its caller.
        task = asyncio.create_task(self._patiently(call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._is_closed or _is_cancelled():
                raise
            raise DeadlineError(f"{call.what}: the driver was closed in the middle") from None

    async def close(self) -> None:
        """Cancels the calls in flight, and closes all connections."""
        self._is_closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._connections.close()

    async def _patiently(self, call: Call) -> Reply:
        """Retries when the receiver says when, and there is time for it. Otherwise the engine decides when.

        It retries only when nothing was done, or when repeating is safe. Once a try may have done it, the outcome stays
        unknown (law 3), whatever later tries return.
        """
        left = self._options.retries
        is_open = False
        while True:
            try:
                return await self._attempt(call)
            except CloudgraftError as error:
                if not left or not _may_repeat(call, error):
                    if is_open and error.retry is not Retry.SETTLE_FIRST:
                        message = f"{error.message}; whether an earlier try did it is not known"
                        raise DeadlineError(message, retry_after=error.retry_after) from None
                    raise
                is_open = is_open or (call.is_change and error.retry is Retry.SETTLE_FIRST)
                wait = error.retry_after or 0.0
            left -= 1
            await asyncio.sleep(wait)

    async def _attempt(self, call: Call) -> Reply:
        progress = Progress()
        try:
            async with asyncio.timeout_at(call.until):
                return await self._exchange(call, progress)
        except CloudgraftError:
            raise
        except (TimeoutError, httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            # Without its cause, which may show the request.
            raise failure(call.what, error, is_change=call.is_change, was_sent=progress.was_sent) from None
        finally:
            await progress.end()

    async def _exchange(self, call: Call, progress: Progress) -> Reply:
        async with self._connections.lent() as http:
            request = self._request(http, call)
            request.extensions["trace"] = progress.note
            try:
                with limited_headers():
                    answer = await http.send(request, stream=True)
            except TooManyHeadersError as error:
                raise InternalError(f"{call.what}: the receiver sends headers without end: {error}") from None
            try:
                body = await self._body(call, answer)
            finally:
                await answer.aclose()
        status = answer.status_code
        if status in SUCCESSES or status in call.welcome:
            return Reply(status=status, body=body)
        is_delete = call.method == "DELETE"
        raise refusal(call.what, status, answer.headers, body, is_change=call.is_change, is_delete=is_delete)

    def _request(self, http: httpx2.AsyncClient, call: Call) -> httpx2.Request:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _AGENT, **call.headers}
        if call.body:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.read()}"
        request = http.build_request(call.method, self._options.base + call.target, content=call.body, headers=headers)
        if self._hmac_key is not None:
            key, target = self._hmac_key.read().encode(), request.url.raw_path.decode("ascii")
            at, nonce = int(time.time()), secrets.token_hex(16)
            request.headers[contract.SIGNATURE] = contract.sign(key, call.method, target, call.body, at=at, nonce=nonce)
        return request

    async def _body(self, call: Call, answer: httpx2.Response) -> bytes:
        """Reads the whole body without decompressing it: a few bytes may expand to gigabytes."""
        most = self._options.max_body
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise InternalError(
                f"{call.what}: the receiver answered {answer.status_code} in an encoding that was not asked for"
            )
        body = bytearray()
        pieces = 0
        async for chunk in answer.aiter_raw():
            body += chunk
            pieces += 1
            if pieces > _FEW_PIECES and len(body) < pieces * _SMALLEST_PIECE:
                raise InternalError(
                    f"{call.what}: the receiver's answer comes in chunks of less than {_SMALLEST_PIECE} bytes on "
                    "average, which take too long to read; let it send larger ones"
                )
            spend_bytes(len(chunk))
            if len(body) > most:
                raise InternalError(
                    f"{call.what}: the receiver's answer has more than {most} bytes (maxBody); let it answer in pages"
                )
        return bytes(body)


def _may_repeat(call: Call, error: CloudgraftError) -> bool:
    """Returns whether the receiver set a retry time that is early enough, and repeating is safe."""
    if error.retry_after is None or asyncio.get_running_loop().time() + error.retry_after >= call.until:
        return False
    if isinstance(error, DeadlineError):
        return call.is_repeatable
    return isinstance(error, RateLimitedError | UnavailableError)


def _secret(options: Options, name: str, option: str, shortest: int) -> SecretFile | None:
    path = getattr(options, name)
    return SecretFile(path=path, option=option, shortest=shortest) if path is not None else None


def _is_cancelled() -> bool:
    """Returns whether the current task itself was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
