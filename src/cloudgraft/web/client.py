"""Sends requests to one of our HTTPS servers, and maps responses to our errors."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from cloudgraft.certs.pem import Stamp, load_tls, stamp
from cloudgraft.sdk.common.tracing import carried
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    UnavailableError,
)
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.web.problems import error_of

_LOG = logging.getLogger("cloudgraft.web")
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_CONNECT_SHARE: Final = 0.9  # share of a request's timeout: an unreachable server is reported before the timeout
_MOST_BYTES: Final = 64 << 20  # of a response


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The server's authority, and our own certificate. Without ``cert`` and ``key``, a token authenticates us."""

    ca: Path | None = None  # None: the public authorities
    cert: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of the files."""
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A server's response. ``json`` is None without a body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None


class WebClient:
    """Sends requests to one server. Use it from one event loop; close it at the end.

    Rereads certificates and the token when their files change.
    """

    def __init__(
        self, address: str, *, tls: ClientTls | None = None, token_file: Path | None = None, timeout: float = 5.0
    ) -> None:
        """``address`` is a URL: https, or http on this host only. Raises an error that names what is unusable."""
        self._url = httpx2.URL(address)
        if self._url.scheme not in ("https", "http") or not self._url.host:
            raise InvalidArgumentError(f"{address!r} is not a URL such as https://manager.example:8443")
        if self._url.scheme == "http" and not is_loopback_host(self._url.host):
            raise InvalidArgumentError(f"{address} is not encrypted: use https, or an address of this host")
        self.address = address
        self._tls = tls or ClientTls()
        self._token = _Token(token_file) if token_file is not None else None
        self._timeout = timeout
        self._seen: Stamp | None = None
        self._users: dict[httpx2.AsyncClient, int] = {}  # requests under way
        self._http = self._open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the request; a caller cannot know what has been sent
    ) -> Answer:
        """Sends one request.

        Raises the error of the problem in the response, UnavailableError when nothing was sent, and DeadlineError when
        the outcome is unknown.
        """
        limit = self._timeout if timeout is None else timeout
        with self._failures(method, path):
            async with asyncio.timeout(limit), self._client() as http:
                request = http.build_request(
                    method,
                    self._at(path),
                    json=json,
                    params=dict(query or {}),
                    headers={**self._authorization(), **dict(carried()), **(headers or {})},
                    timeout=httpx2.Timeout(limit, connect=limit * _CONNECT_SHARE),
                )
                response = await http.send(request, stream=True)
                try:
                    return _read(response, await _content(response))
                finally:
                    await response.aclose()

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    def _at(self, path: str) -> str:
        # Not by joining URLs: "//name/…" would lead to another host, and the token with it.
        return f"{self.address.rstrip('/')}{path}"

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.value()}"} if self._token is not None else {}

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        await self._look_at_files()
        http = self._http
        self._users[http] = self._users.get(http, 0) + 1
        try:
            yield http
        finally:
            self._users[http] -= 1
            await self._let_go(http)

    async def _look_at_files(self) -> None:
        if not self._tls.paths or stamp(*self._tls.paths) in (self._seen, None):
            return
        old = self._http
        try:
            self._http = self._open()
        except CloudgraftError as error:  # perhaps only half of them are written
            _LOG.warning("new TLS files cannot be used, the old ones stay: %s", error.message)
        else:
            await self._let_go(old)

    async def _let_go(self, http: httpx2.AsyncClient) -> None:
        """Closes connections with old certificates after the last response on them."""
        if not self._users.get(http):
            self._users.pop(http, None)
            if http is not self._http:
                await http.aclose()

    def _open(self) -> httpx2.AsyncClient:
        self._seen = stamp(*self._tls.paths) if self._tls.paths else None
        verify: ssl.SSLContext | bool = _context(self._tls) if self._url.scheme == "https" else True
        return httpx2.AsyncClient(verify=verify, trust_env=False, follow_redirects=False)

    @contextmanager
    def _failures(self, method: str, path: str) -> Iterator[None]:
        what = f"{method} {self._at(path)}"
        try:
            yield
        except _NOT_SENT as error:
            raise UnavailableError(f"{what}: cannot be reached: {str(error) or type(error).__name__}") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise DeadlineError(f"{what}: no answer in time") from error
        except httpx2.HTTPError as error:
            raise DeadlineError(f"{what}: the connection broke: {str(error) or type(error).__name__}") from error


class _Token:
    """A token in a file, reread when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Stamp | None = None
        self._value = ""

    def value(self) -> str:
        now = stamp(self._path)
        if now is None or now != self._seen:
            try:
                value = self._path.read_text().split()
            except OSError as error:
                raise AuthenticationError(f"the token cannot be read: {self._path}: {error.strerror}") from error
            if not value:
                raise AuthenticationError(f"there is no token in {self._path}")
            hide(value[0])
            unhide(self._value)
            self._value, self._seen = value[0], now
        return self._value


def _context(tls: ClientTls) -> ssl.SSLContext:
    if tls.cert is not None and tls.key is not None:
        load_tls(tls.cert, tls.key, tls.ca)  # names the invalid file and the reason
    try:
        context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
        if tls.cert is not None and tls.key is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError) as error:
        files = ", ".join(map(str, tls.paths))
        raise InvalidArgumentError(f"these TLS files cannot be used: {files}: {error.strerror or error}") from error
    return context


async def _content(response: httpx2.Response) -> bytes:
    """Reads a body up to the size that our servers send: an endless one would fill the memory."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > _MOST_BYTES:
            raise DeadlineError(f"the answer has more than {_MOST_BYTES} bytes: that is not one of our servers")
    return bytes(content)


def _read(response: httpx2.Response, content: bytes) -> Answer:
    body: object = None
    if content and "json" in response.headers.get("Content-Type", ""):
        try:
            body = loads(content)
        except (ValueError, RecursionError) as error:
            raise DeadlineError(f"the answer with status {response.status_code} is not JSON") from error
    if response.is_error:
        wait = response.headers.get("Retry-After", "")
        is_change = response.request.method != "GET"
        pause = float(wait) if wait.isdigit() else None
        raise error_of(response.status_code, body, is_change=is_change, retry_after=pause)
    return Answer(status=response.status_code, headers=dict(response.headers), json=body)
