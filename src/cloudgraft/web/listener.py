"""Runs the port of an HTTPS server: reloads TLS files when they change, and reads client certificates.

uvicorn does not expose a client's certificate; a protocol class of our own puts its names into the state of each
request, where authentication finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import h11
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloudgraft.certs.names import names_in_der
from cloudgraft.certs.pem import load_authority, load_tls, stamp
from cloudgraft.net.connections import UNKNOWN, Connections, LimitedSocket, ListenerMetrics
from cloudgraft.net.descriptors import connection_limit
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError, UnavailableError
from cloudgraft.web.authentication import PEER_NAMES, REPORT_CLIENT
from cloudgraft.web.problems import MEDIA_TYPE, problem_of

_LOG = logging.getLogger("cloudgraft.web")
_KEEP_ALIVE = 75  # seconds; longer than the interval of an agent's heartbeats, or of a front's reads
_FAREWELL = 0.2  # seconds that a client has to close its side of a connection
_CONNECTIONS: Final = 512
_HANDSHAKE: Final = 10.0  # seconds
_ARRIVAL = 20.0  # seconds in which a request must arrive, with its body


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTls:
    """The server's certificate and key, and the authority of its clients (PEM files).

    Without ``client_ca`` clients show no certificates, and authenticate by token.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of the files."""
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)


class WebListener:
    """Serves an application on one port, in the caller's event loop."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        listen: str,
        tls: WebTls | None,
        connections: int = _CONNECTIONS,
        metrics: ListenerMetrics | None = None,
    ) -> None:
        """Opens nothing yet; raises an error that names an unusable TLS file.

        ``connections`` is the limit of concurrent ones.
        """
        metrics = metrics or ListenerMetrics(CollectorRegistry())
        self._connections = Connections(connection_limit(connections), metrics.refusals("web"))
        metrics.watch("web", lambda: len(self._connections), self._connections.limit)
        self._app = app
        self._listen = listen
        self._tls = _ReloadingContext(tls) if tls is not None else None
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    @property
    def address(self) -> str:
        """``host:port``, with the real port."""
        if self._socket is None:
            return self._listen
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def open(self) -> None:
        """Starts listening. UnavailableError when the address is not available."""
        self._socket = _bound(self._listen, self._connections)
        config = uvicorn.Config(
            self._app,
            http=self._protocol(),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # do not trust a client's claim about its address
            timeout_keep_alive=_KEEP_ALIVE,
            ssl_context_factory=(lambda *_: self._tls.outer) if self._tls is not None else None,  # type: ignore[union-attr]
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="web listener")
        opened = asyncio.create_task(self._server.is_open.wait())
        await asyncio.wait([opened, self._task], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self._task.done():
            self._task.result()
        self._sweeping = asyncio.create_task(self._sweep(), name="web handshakes")

    async def close(self, grace: float = 5.0) -> None:
        """Rejects new requests, waits ``grace`` seconds for those under way, and cuts off the rest."""
        if self._server is None or self._task is None:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._server.config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        await asyncio.wait([self._task])
        self._server = self._task = self._socket = None

    def _protocol(self) -> type[_CertifiedProtocol]:
        """A protocol class for uvicorn, which creates the objects itself: its attributes are this listener's state."""
        return type("_Protocol", (_CertifiedProtocol,), {"limited": self._connections})

    async def _sweep(self) -> None:
        """Ends slow handshakes: asyncio allows them a minute."""
        while True:
            await asyncio.sleep(1.0)
            self._connections.close_ungreeted(_HANDSHAKE)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_open = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Signals when connections are accepted."""
        await super().startup(sockets)
        self.is_open.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: the process handles signals itself."""
        yield


class _CertifiedProtocol(H11Protocol):
    """Adds the client's certificate names to requests, and times out connections that send too slowly."""

    limited: ClassVar[Connections]  # uvicorn has `connections` of its own
    _arriving: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_there = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        is_idle = self.timeout_keep_alive_task is not None  # idle connections have a limit of their own
        if is_there or is_idle:
            self._has_arrived()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(_ARRIVAL, self.transport.abort)
        self._take_leave()  # of clients that do not speak HTTP

    def send_400_response(self, msg: str) -> None:
        """Responds with a problem, as the API promises: invalid HTTP never reaches the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # otherwise a response has begun, and just ends
            error = InvalidArgumentError("this is not HTTP/1.1, or it breaks its rules: send a request that it allows")
            body = problem_of(error).model_dump_json(by_alias=True).encode()
            headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
            for event in (
                h11.Response(status_code=400, reason=b"Bad Request", headers=headers),
                h11.Data(body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_arrived()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self._take_leave()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._take_leave()

    def _take_leave(self) -> None:
        """Closes soon: an idle client does not notice the close, and TLS would wait for it."""
        if self.transport.is_closing() and self._leaving is None:
            self._leaving = self.loop.call_later(_FAREWELL, self._leave)

    def _leave(self) -> None:
        self._leaving = None
        if self.transport.get_write_buffer_size():
            self._take_leave()  # it still reads the last response
        else:
            self.transport.abort()

    def _has_arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the parent
        super().connection_made(transport)
        self._arriving = self.loop.call_later(_ARRIVAL, transport.abort)
        connection = transport.get_extra_info("ssl_object")
        der = connection.getpeercert(binary_form=True) if connection is not None else None
        # uvicorn copies this into the state of each request on the connection.
        names = names_in_der(der) if der else ()
        descriptor = transport.get_extra_info("socket").fileno()
        self.limited.greet(descriptor)

        def report(is_known: bool) -> None:  # noqa: FBT001 - the only argument of a callback
            if is_known:
                self.limited.trust(descriptor)
            else:
                self.limited.refuse(UNKNOWN)

        self.app_state = {**self.app_state, PEER_NAMES: names, REPORT_CLIENT: report}


class _ReloadingContext:
    """A TLS context that passes every new connection to one made from the current files."""

    def __init__(self, files: WebTls) -> None:
        self._files = files
        self._seen = stamp(*files.paths)
        self._inner = _context(files)
        self.outer = _context(files)
        self.outer.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        self._reload()
        connection.context = self._inner

    def _reload(self) -> None:
        now = stamp(*self._files.paths)
        if now == self._seen:
            return
        self._seen = now  # even when they are unusable: log that once, not at every connection
        try:
            self._inner = _context(self._files)
        except CloudgraftError as error:
            _LOG.warning("new TLS files cannot be used, the old ones stay: %s", error.message)
        else:
            _LOG.info("TLS files read again", extra={"cert": str(self._files.cert)})


def _context(files: WebTls) -> ssl.SSLContext:
    load_tls(files.cert, files.key, files.client_ca)  # names the invalid file and the reason
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that resumes with a ticket shows no certificate, even if its authority is no longer trusted.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.cert, files.key)
        if files.client_ca is not None:
            # Optional, since some clients use a token: one without a certificate has no name.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=load_authority(files.client_ca).decode())
    except (ssl.SSLError, OSError) as error:
        raise PreconditionError(f"the certificate {files.cert} cannot be used: {error}") from error
    return context


def _bound(listen: str, connections: Connections) -> socket.socket:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as 127.0.0.1:8443")
    try:
        found: Any = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = LimitedSocket(family, kind, protocol)
        bound.connections = connections
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise UnavailableError(f"cannot listen on {listen}: {error.strerror or error}; is it in use?") from error
    bound.setblocking(False)
    return bound
