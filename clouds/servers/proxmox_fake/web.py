"""The fake over HTTP: tokens and tickets, forms and uploads, faults, and ways to look behind the API."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import struct
import threading
import time
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudgraft.certs.issue import Validity, new_authority, server_pair
from cloudgraft.certs.names import parse_host
from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.faults import Fault, Faults, Kind
from clouds.servers.proxmox_fake.refusals import RefusedError
from clouds.servers.proxmox_fake.routes import Routes

__all__ = ["FakeProxmox"]

_PREFIX: Final = "/api2/json"


class FakeProxmox:
    """A server on a port of this machine, in a thread of its own."""

    user = "cloudgraft@pve"
    token_user = "cloudgraft@pve!scaler"

    def __init__(
        self, cluster: Cluster | None = None, *, port: int = 0, host: str = "127.0.0.1", tls: Path | None = None
    ) -> None:
        self.cluster = cluster or Cluster()
        self.faults = Faults()
        self.token = "fa4e0000-1111-2222-3333-444455556666"
        self.password = "fake-password"
        self.requests: list[tuple[str, str]] = []  # method and path of each, in order
        self.given: list[tuple[str, dict[str, str]]] = []  # path and parameters of each change, in order
        self.tickets: dict[str, tuple[str, float]] = {}  # CSRF token and end of each
        self.ticket_life = 7200.0  # seconds
        self.hung = threading.Event()  # set: what hangs is let go
        self.routes = Routes(self.cluster)
        self._tls = _tls_context(tls) if tls is not None else None
        self._server = _Server((host, port), self, self._tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, also what hangs."""
        self.hung.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self) -> None:
        """The same in this thread, for as long as it lives."""
        self._server.serve_forever()

    def count(self, method: str, part: str) -> int:
        """How many such requests there were; a part of the path is enough."""
        return sum(one == method and part in path for one, path in self.requests)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- who it is -----------------------------------------------------------------------------------------------------

    def login(self, given: dict[str, str]) -> dict[str, Any]:
        """A ticket for a password."""
        if (given.get("username"), given.get("password")) != (self.user, self.password):
            raise RefusedError(401, "authentication failure")
        ticket = f"PVE:{self.user}:{int(time.time()):08X}::{secrets.token_urlsafe(32)}"
        csrf = f"{int(time.time()):08X}:{secrets.token_urlsafe(16)}"
        self.tickets[ticket] = (csrf, time.monotonic() + self.ticket_life)
        return {"username": self.user, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": {}}

    def known(self, headers: Any, method: str, *, is_upload: bool) -> str:
        """The user that a request shows; raises RefusedError."""
        token = headers.get("Authorization", "")
        if token.startswith("PVEAPIToken="):
            if token.removeprefix("PVEAPIToken=") != f"{self.token_user}={self.token}":
                raise RefusedError(401, "Authentication failed!")
            return self.token_user
        cookie = SimpleCookie(headers.get("Cookie", "")).get("PVEAuthCookie")
        csrf, end = self.tickets.get(unquote(cookie.value) if cookie else "", ("", 0.0))
        if time.monotonic() >= end:
            raise RefusedError(401, "Authentication failed!" if cookie else "No ticket")
        if method != "GET" and not is_upload and headers.get("CSRFPreventionToken") != csrf:
            raise RefusedError(401, "Permission denied - invalid csrf token")
        return self.user


def _tls_context(directory: Path) -> ssl.SSLContext:
    """With a certificate of an authority that is made here; ``ca.crt`` is for clients."""
    validity = Validity.days(1)
    authority = new_authority(validity)
    pair = server_pair(authority, [parse_host("127.0.0.1"), parse_host("localhost")], validity)
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "pve.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pve.pem")
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fake: FakeProxmox, tls: ssl.SSLContext | None) -> None:
        self.fake = fake
        self._tls = tls
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The handshake is made by the thread that answers."""
        connection, address = super().get_request()
        if self._tls is None:
            return connection, address
        return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = -1  # one write for an answer
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library calls it so
        """Nothing is written for each request."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        fake = self.server.fake
        url = urlsplit(self.path)
        path, query = unquote(url.path.removeprefix(_PREFIX)), dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path.startswith("/fake/"):
            self._answer(200, _behind(fake, method, url.path, body))
            return
        fake.requests.append((method, path))
        fault = fake.faults.take(method, path)
        if fault is not None and self._breaks_before(fault):
            return
        try:
            status, answer = 200, {"data": self._done(method, path, query, body, fault)}
        except RefusedError as error:
            status, answer = error.status, {"data": None, "message": f"{error}\n"}
            answer |= {"errors": error.errors} if error.errors else {}
        if fault is not None and self._breaks_after(fault, status, answer):
            return
        self._answer(status, answer)

    def _done(self, method: str, path: str, query: dict[str, str], body: bytes, fault: Fault | None) -> Any:
        fake = self.server.fake
        given, content = _form(self.headers.get("Content-Type", ""), body)
        if (method, path) == ("POST", "/access/ticket"):
            return fake.login(given)
        user = fake.known(self.headers, method, is_upload=path.endswith("/upload"))
        if method != "GET":
            fake.given.append((path, {**query, **given}))
        with fake.cluster.lock:
            fake.cluster.advance()
            if fault is not None and fault.kind is Kind.TASK:
                fake.cluster.tasks.next_failure = fault.message
            return fake.routes.serve(user, method, path, {**query, **given}, content)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _breaks_before(self, fault: Fault) -> bool:
        match fault.kind:
            case Kind.ERROR:
                self._fail(fault)
            case Kind.RESET:
                self._reset()
            case Kind.HANG:
                self.server.fake.hung.wait()
                self._reset()
            case _:
                return False
        return True

    def _breaks_after(self, fault: Fault, status: int, answer: dict[str, Any]) -> bool:
        match fault.kind:
            case Kind.TASK:
                return False
            case Kind.ERROR_AFTER:
                self._fail(fault)
            case Kind.RESET_AFTER:
                self._reset()
            case Kind.HANG_AFTER:
                self.server.fake.hung.wait()
                self._reset()
            case Kind.HALF_BODY:
                text = json.dumps(answer).encode()
                self._send(status, {"Content-Length": str(len(text))}, text[: len(text) // 2])
                self.close_connection = True
            case _:
                self._send(status, {"Content-Length": "9"}, b"<html>no\n")
        return True

    def _fail(self, fault: Fault) -> None:
        text = json.dumps({"data": None, "message": fault.message}).encode()
        self._send(fault.status, {**fault.headers, "Content-Length": str(len(text))}, text, fault.message)

    def _reset(self) -> None:
        """Breaks the connection at once, as a host does that is gone."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        text = json.dumps(answer).encode()
        headers = {"Content-Type": "application/json;charset=UTF-8", "Content-Length": str(len(text))}
        self._send(status, headers, text, str(answer.get("message", "")).strip())

    def _send(self, status: int, headers: dict[str, str], body: bytes, reason: str = "") -> None:
        self.send_response(status, reason.encode("latin-1", "replace").decode("latin-1") or None)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


def _form(kind: str, body: bytes) -> tuple[dict[str, str], bytes]:
    """The parameters of a body, and the file in it."""
    if kind.startswith("application/json"):
        data = json.loads(body or b"{}") or {}
        return {key: str(int(value) if isinstance(value, bool) else value) for key, value in data.items()}, b""
    if not kind.startswith("multipart/form-data"):
        return dict(parse_qsl(body.decode(), keep_blank_values=True)), b""
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    given, content = {}, b""
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, value = part.removesuffix(b"\r\n").partition(b"\r\n\r\n")
        words = head.decode()
        name = words.partition('name="')[2].partition('"')[0]
        if 'filename="' in words:
            given["filename"], content = words.partition('filename="')[2].partition('"')[0], value
        else:
            given[name] = value.decode()
    return given, content


def _behind(fake: FakeProxmox, method: str, path: str, body: bytes) -> dict[str, Any]:
    """For judges of another process: what there is, and what is to go wrong."""
    if method == "PUT" and path == "/fake/faults":
        fake.faults.order(*(Fault.from_json(one) for one in json.loads(body)))
    cluster = fake.cluster
    return {"alive": cluster.alive(), "ever": cluster.ever, "left": cluster.leftovers(), "requests": fake.requests}
