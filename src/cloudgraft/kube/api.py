"""One connection to a Kubernetes API: calls and streams of bytes, every failure in our words.

lightkube makes the authenticated connection. The calls themselves are made here, because
a kubelet needs what lightkube's own do not have: a delete that names the uid it means, a watch with bookmarks that
notices a dead connection, and times with exactly six decimals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from lightkube.config import client_adapter
from lightkube.config.models import User
from lightkube.exceptions import ConfigError
from msgspec import MsgspecError
from msgspec.json import encode

from cloudgraft.kube.checked_transport import CheckedTransport
from cloudgraft.kube.credentials import Credentials, authority_of, usable
from cloudgraft.kube.errors import refusal
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.rights import Right
from cloudgraft.net.stepped_http import TooManyHeadersError, limited_headers, read_in_steps
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InternalError,
    UnavailableError,
)

__all__ = ["Api", "Call", "Lines", "TooLongError"]


# -- Splits a stream of bytes into lines, none longer than it may be. Pure ---------------------------------------------


class TooLongError(Exception):
    """A line that has not ended is longer than any may be."""


class Lines:
    """Keeps the beginning of a line until its end comes."""

    def __init__(self, longest: int) -> None:
        """``longest`` is in bytes."""
        self._longest = longest
        self._begun = bytearray()

    @property
    def begun(self) -> bytes:
        """A line that has begun and not ended; empty for none."""
        return bytes(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in the data. Raises TooLongError, before more than the longest line is kept."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            line = bytes(self._begun)
            self._begun.clear()
            yield line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if len(self._begun) + len(part) > self._longest:
            raise TooLongError(f"a line of the answer has more than {self._longest} bytes")
        self._begun += part


_MOST_BYTES = 256 << 20  # of an answer: far more than a page of five hundred objects has
_MOST_FOREIGN_BYTES = 16 << 20  # the same of somebody else's API, of which little is asked
_MOST_LISTED = 2 << 30  # bytes of a list with all its pages
_MOST_FOREIGN_LISTED = 64 << 20
_MOST_LINE = 8 << 20  # bytes of one event: the API takes no object of more than 3 MiB
# Before these, nothing was sent; after any other failure of the connection the outcome is unknown.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request; ``what`` is for error messages, as in "cannot list nodes", and ``right`` is what it needs."""

    what: str
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: object = None
    media_type: str = "application/json"
    right: Right | None = None


class Api:
    """A connection to one API. Use it from one event loop."""

    def __init__(
        self, credentials: Credentials, *, name: str, timeout: float, networks: AllowedNetworks | None = None
    ) -> None:
        """``name`` says where the credentials are from. Raises InvalidArgumentError when they cannot be used.

        ``networks`` are for the API of somebody else: it is reached at no other address, and may say less.
        """
        self._timeout = timeout
        self._most_bytes = _MOST_BYTES if networks is None else _MOST_FOREIGN_BYTES
        self.most_listed = _MOST_LISTED if networks is None else _MOST_FOREIGN_LISTED
        self.credentials = credentials
        self._http = _open(credentials, name, timeout, networks)
        self.last_failure: CloudgraftError | None = None
        self.server = str(credentials.cluster.server)
        self.authority = authority_of(credentials)  # PEM; empty when none is given

    async def call(self, call: Call) -> bytes:
        """Makes one call and returns the body of the answer."""
        try:
            if self._http.is_closed:
                raise UnavailableError(f"{call.what}: the client was closed meanwhile")
            with _failures(call.what):
                async with asyncio.timeout(self._timeout):
                    answer = await self._send(self._request(call))
                    try:
                        body = await self._body(call, answer)
                    finally:
                        await answer.aclose()
            _check(call, answer, body)
        except CloudgraftError as error:
            self.failed(error)
            raise
        return body

    def failed(self, error: CloudgraftError) -> CloudgraftError:
        """Notes that a call failed so."""
        self.last_failure = error
        return error

    async def stream(self, call: Call, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """The lines of an answer as they come, until the server ends it, which it must within the seconds.

        One that does not has lost the connection, or never means to end. Nothing is read ahead of who takes the lines,
        beside one line that has begun.
        """
        with _failures(call.what):
            until = asyncio.get_running_loop().time() + seconds
            request = self._request(call, read_timeout=seconds)
            async with asyncio.timeout(self._timeout):
                answer = await self._send(request)
            try:
                if answer.is_error:
                    async with asyncio.timeout(self._timeout):
                        body = await self._body(call, answer)
                    _check(call, answer, body)
                lines = Lines(_MOST_LINE)
                async with aclosing(self._chunks(call, answer, self.most_listed, until)) as chunks:
                    async for chunk in chunks:
                        for line in lines.feed(chunk):
                            yield line
                if lines.begun:
                    yield lines.begun
            finally:
                await answer.aclose()

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        with limited_headers():
            return await self._http.send(request, stream=True)

    async def _body(self, call: Call, answer: httpx2.Response) -> bytes:
        body = bytearray()
        async with aclosing(self._chunks(call, answer, self._most_bytes)) as chunks:
            async for chunk in chunks:
                body += chunk
        return bytes(body)

    async def _chunks(
        self, call: Call, answer: httpx2.Response, most: int, until: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """All of an answer, unless it has no end: a remote cluster is not ours, and could fill our memory.

        It is not unpacked: a few bytes may be packed gigabytes.
        """
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise DeadlineError(f"{call.what}: the answer comes in an encoding that was not asked for")
        read = 0
        async with aclosing(answer.aiter_raw()) as chunks:
            while True:
                async with asyncio.timeout_at(until):  # not around the yield: who takes it has its own time
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                read += len(chunk)
                if read > most:
                    raise DeadlineError(f"{call.what}: the answer has more than {most >> 20} MiB")
                yield chunk

    def _request(self, call: Call, *, read_timeout: float | None = None) -> httpx2.Request:
        body = None if call.body is None else encode(call.body)
        return self._http.build_request(
            call.method,
            call.path,
            params=dict(call.query or {}),
            content=body,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"}
            | ({} if body is None else {"Content-Type": call.media_type}),
            timeout=httpx2.Timeout(self._timeout, read=self._timeout if read_timeout is None else read_timeout),
        )


def _open(credentials: Credentials, name: str, timeout: float, networks: AllowedNetworks | None) -> httpx2.AsyncClient:
    with usable(name):
        params = client_adapter.ConnectionParams(timeout=httpx2.Timeout(timeout))
        if networks is not None:
            user = credentials.user or User()
            context = client_adapter.verify_cluster(credentials.cluster, user, credentials.abs_file, trust_env=False)
            transport: Any = CheckedTransport(context, networks)  # lightkube declares the synchronous kind
            params = client_adapter.ConnectionParams(
                timeout=httpx2.Timeout(timeout), trust_env=False, transport=transport
            )
        client = client_adapter.AsyncClient(credentials, params)
        if networks is None:
            read_in_steps(client)
        return client


def _check(call: Call, answer: httpx2.Response, body: bytes) -> None:
    if not answer.is_success:
        wait = answer.headers.get("Retry-After", "")
        raise refusal(call.what, answer.status_code, body, retry_after=wait, right=call.right)


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Turns whatever the connection raises into one of our errors."""
    try:
        yield
    except (CloudgraftError, GeneratorExit):
        raise
    except _NOT_SENT as error:
        raise UnavailableError(f"{what}: the Kubernetes API cannot be reached: {_told(error)}") from error
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise DeadlineError(f"{what}: the Kubernetes API did not answer in time") from error
    except (TooManyHeadersError, TooLongError) as error:
        raise DeadlineError(f"{what}: {error}") from error
    except (ConfigError, OSError) as error:  # a program or a file that the credentials are to come from
        raise AuthenticationError(f"{what}: the credentials cannot be had: {error}") from error
    except (httpx2.InvalidURL, OverflowError) as error:
        raise UnavailableError(f"{what}: the address of the Kubernetes API makes no sense: {_told(error)}") from error
    except ExceptionGroup as error:  # of attempts to connect, to several addresses at a time
        raise UnavailableError(f"{what}: the Kubernetes API cannot be reached: {_told(error.exceptions[0])}") from error
    except httpx2.HTTPError as error:
        raise DeadlineError(f"{what}: the connection to the Kubernetes API broke: {_told(error)}") from error
    except MsgspecError as error:
        raise InternalError(f"{what}: the manifest cannot be written: {error}") from error


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
