"""Calls a receiver: signs requests, limits time and size, and retries when the receiver asks for it."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx2

from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.http import contract
from cloudgraft.drivers.http.connections import Connections, Progress
from cloudgraft.drivers.http.errors import SUCCESSES, failure, refusal
from cloudgraft.drivers.http.options import Options
from cloudgraft.net.stepped_http import TooManyHeadersError, limited_headers
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    RateLimitedError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.list_budget import spend_bytes

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
