"""Loses answers of a cloud that speaks plain HTTP: a proxy lets the request through and drops what comes back."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from cloudgraft.conformance.driver.settings import Trouble
from cloudgraft.sdk.errors import InvalidArgumentError

_READS = ("GET", "HEAD", "OPTIONS")
_OWN = ("connection", "transfer-encoding", "content-length", "keep-alive")  # headers of each connection by itself
_SECONDS = 60.0  # for one answer of the cloud
_LINE = 65536  # bytes of a chunk's length


class LosingProxy:
    """``with`` it, and give the driver :attr:`url`. One answer to a request that changes something gets lost.

    ``Trouble.ERROR_AFTER`` replaces it by a 503, ``Trouble.LOST_ANSWER`` closes the connection. Only answers that
    report success are lost, and only those whose path has ``path`` in it; ``skip`` lets the first of them through.
    """

    def __init__(self, upstream: str, trouble: Trouble, *, path: str = "", skip: int = 0) -> None:
        """``upstream`` is the cloud's address, such as http://127.0.0.1:9400/v1."""
        self.check(upstream)
        parts = urlsplit(upstream)
        self.lost = 0  # answers
        self._trouble = trouble
        self._wanted = path
        self._skip = skip
        self._lock = threading.Lock()
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{parts.path}"

    @staticmethod
    def check(upstream: str) -> None:
        """Raises InvalidArgumentError for an address that it cannot stand before."""
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidArgumentError(
                f"only answers of plain HTTP can be lost, and the address of the cloud is {upstream}: test with one "
                "that begins with http://"
            )

    def __enter__(self) -> Self:
        """Begins to answer, in threads of its own."""
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="losing-proxy", daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The cloud's own answer."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS)
        try:
            connection.request(method, path, body=body or None, headers={**headers, "Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def loses(self, method: str, path: str, status: int) -> Trouble | None:
        """How this answer gets lost; None for one that does not."""
        if method in _READS or not 200 <= status < 300 or self._wanted not in path:
            return None
        with self._lock:
            if self.lost or self._skip:
                self._skip = max(0, self._skip - 1)
                return None
            self.lost += 1
            return self._trouble


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], proxy: LosingProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A driver that goes away in the middle of a request is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> object:
        """Treats all methods alike."""
        if name.startswith("do_"):
            return self._pass_on
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Says nothing."""

    def _pass_on(self) -> None:
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _OWN}
        body = self._body()
        try:
            status, answered, content = self.server.proxy.ask(self.command, self.path, headers, body)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # as the cloud did
            return
        trouble = self.server.proxy.loses(self.command, self.path, status)
        if trouble is Trouble.LOST_ANSWER:
            self.close_connection = True
            return
        if trouble is not None:
            status, answered, content = 503, [("Content-Type", "text/plain")], b"busy; try again later\n"
        self.send_response_only(status)
        for key, value in answered:
            if key.lower() not in _OWN:
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(_LINE).split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline(_LINE)
        while self.rfile.readline(_LINE).strip():
            pass  # trailers
        return body
