"""Makes calls and streams over one connection to a Kubernetes API, and maps every failure to our errors.

lightkube makes the authenticated connection. The calls themselves are made here, because a kubelet needs what
lightkube's own do not have: a delete with a uid precondition, a watch with bookmarks that notices a dead connection,
and times with exactly six decimals.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httpcore2
import httpx2
from lightkube.config import client_adapter
from lightkube.config.models import User
from lightkube.exceptions import ConfigError
from msgspec import MsgspecError
from msgspec.json import encode

from cloudgraft.kube.credentials import Credentials, authority_of, usable
from cloudgraft.kube.errors import refusal
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.rights import Right
from cloudgraft.net.stepped_http import (
    SteppedBackend,
    SteppedTransport,
    TooManyHeadersError,
    limited_headers,
    read_in_steps,
)
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, DeadlineError, InternalError, UnavailableError

# -- Connections to foreign endpoints, at allowed addresses only -------------------------------------------------------
# A name is resolved once, its addresses are checked, and the connection is made to a checked one: a name that
# resolves to another address a moment later (DNS rebinding) changes nothing. TLS still verifies the name. No proxy is
# used, since it would resolve the name by itself.


# Not asyncio's shared threads: a name server that never answers blocks one for half a minute.
_RESOLVERS: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="foreign-names")


class CheckedTransport(SteppedTransport):
    """Connects to checked addresses only, and reads in small steps."""

    def __init__(self, context: ssl.SSLContext, networks: AllowedNetworks) -> None:
        super().__init__(context, backend=_CheckedBackend(networks))


class _CheckedBackend(SteppedBackend):
    def __init__(self, networks: AllowedNetworks) -> None:
        self._networks = networks

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._resolved(host, port)
        allowed = [address for address in addresses if self._networks.allows(address)]
        if not allowed:
            raise httpcore2.ConnectError(self._networks.refusal(f"the address {addresses[0]} of the server"))
        for address in allowed[:-1]:
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await super().connect_tcp(allowed[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("a foreign endpoint is no socket of this host")

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                _RESOLVERS, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            )
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved: {error.strerror}") from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


# -- Lines of a stream -------------------------------------------------------------------------------------------------
# Splits bytes into lines of a limited length. Pure.


class TooLongError(Exception):
    """An unfinished line exceeds the limit."""


class Lines:
    """Buffers the beginning of a line until its end arrives."""

    def __init__(self, longest: int) -> None:
        """``longest`` is in bytes."""
        self._longest = longest
        self._begun = bytearray()

    @property
    def begun(self) -> bytes:
        """The unfinished line; empty for none."""
        return bytes(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Returns the lines that end in the data. Raises TooLongError before it buffers more than the longest line."""
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


_MOST_BYTES = 256 << 20  # of a response: far more than a page of five hundred objects
_MOST_FOREIGN_BYTES = 16 << 20  # the same for a foreign API, which needs little
_MOST_LISTED = 2 << 30  # bytes of a list with all its pages
_MOST_FOREIGN_LISTED = 64 << 20
_MOST_LINE = 8 << 20  # bytes of one event: the API accepts no object of more than 3 MiB
# With these, nothing was sent; after any other failure of the connection the outcome is unknown.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request; ``what`` is for error messages, as in "cannot list nodes", and ``right`` is the required right."""

    what: str
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: object = None
    media_type: str = "application/json"
    right: Right | None = None

    @property
    def is_change(self) -> bool:
        """Whether the outcome of the call is unknown when its response is lost."""
        return self.method != "GET"


class Api:
    """A connection to one API. Use it from one event loop."""

    def __init__(
        self, credentials: Credentials, *, name: str, timeout: float, networks: AllowedNetworks | None = None
    ) -> None:
        """``name`` is the source of the credentials. Raises InvalidArgumentError when they are unusable.

        ``networks`` are for a foreign API: no other address is connected to, and its responses are limited more.
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
        """Makes one call and returns the body of the response."""
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
        """Records the failure of a call."""
        self.last_failure = error
        return error

    async def stream(self, call: Call, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """Yields the lines of a response until the server ends it, which it must within the seconds.

        A server that does not has lost the connection, or never ends. Reads nothing ahead of the consumer, except one
        unfinished line.
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
        """Reads a response up to a limit: a foreign cluster could fill our memory.

        Does not decompress: a few bytes may expand to gigabytes.
        """
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise DeadlineError(f"{call.what}: the answer comes in an encoding that was not asked for")
        read = 0
        async with aclosing(answer.aiter_raw()) as chunks:
            while True:
                async with asyncio.timeout_at(until):  # not around the yield: the consumer has its own time
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
        how: dict[str, Any] = {}
        if networks is not None:
            user = credentials.user or User()
            context = client_adapter.verify_cluster(credentials.cluster, user, credentials.abs_file, trust_env=False)
            how = {"trust_env": False, "transport": CheckedTransport(context, networks)}
        params = client_adapter.ConnectionParams(timeout=httpx2.Timeout(timeout), **how)
        client = client_adapter.AsyncClient(credentials, params)
        if networks is None:
            read_in_steps(client)
        return client


def _check(call: Call, answer: httpx2.Response, body: bytes) -> None:
    if not answer.is_success:
        wait = answer.headers.get("Retry-After", "")
        raise refusal(call.what, answer.status_code, body, is_change=call.is_change, retry_after=wait, right=call.right)


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Maps every exception of the connection to one of our errors."""
    try:
        yield
    except (CloudgraftError, GeneratorExit):
        raise
    except _NOT_SENT as error:
        raise UnavailableError(f"{what}: the Kubernetes API cannot be reached: {_described(error)}") from error
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise DeadlineError(f"{what}: the Kubernetes API did not answer in time") from error
    except (TooManyHeadersError, TooLongError) as error:
        raise DeadlineError(f"{what}: {error}") from error
    except (ConfigError, OSError) as error:  # a program or a file that provides the credentials
        raise AuthenticationError(f"{what}: cannot get the credentials: {error}") from error
    except (httpx2.InvalidURL, OverflowError) as error:
        raise UnavailableError(f"{what}: the API's address is invalid: {_described(error)}") from error
    except ExceptionGroup as error:  # of concurrent attempts to connect to several addresses
        raise UnavailableError(
            f"{what}: the Kubernetes API cannot be reached: {_described(error.exceptions[0])}"
        ) from error
    except httpx2.HTTPError as error:
        raise DeadlineError(f"{what}: the connection to the Kubernetes API broke: {_described(error)}") from error
    except MsgspecError as error:
        raise InternalError(f"{what}: the manifest cannot be written: {error}") from error


def _described(error: Exception) -> str:
    return str(error) or type(error).__name__
