"""Runs a small HTTP server in threads, with limits on connections and headers."""

from __future__ import annotations

import logging
import socket
import sys
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, cast

from cloudgraft.net.connections import Connections, Refuse
from cloudgraft.net.descriptors import connection_limit

_HEADER_BYTES: Final = 16 * 1024  # of one request, its first line included


class LimitedHttpServer(ThreadingHTTPServer):
    """Limits its connections. Closes the oldest for a new one: a probe always gets a response."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    log: ClassVar[logging.Logger] = logging.getLogger("cloudgraft.net")

    def __init__(
        self, address: tuple[str, int], handler: type[LimitedHandler], *, connections: int, refuse: Refuse
    ) -> None:
        """Opens the port. ``refuse`` counts connections that were closed for others."""
        self.connections = Connections(connection_limit(connections), refuse)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    @property
    def listens_on(self) -> str:
        """``host:port``, with the real port."""
        host, port = self.server_address[:2]
        return f"[{host!s}]:{port}" if self.address_family is socket.AF_INET6 else f"{host!s}:{port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Records each connection."""
        connection, peer = super().get_request()
        self.connections.add(connection, peer)
        return connection, peer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that disconnects; the base class would print a traceback."""
        self.log.debug("http client failed", extra={"peer": str(client_address), "error": repr(sys.exception())})


class LimitedHandler(BaseHTTPRequestHandler):
    """Reads at most a few kilobytes of headers; the base class would read megabytes."""

    sys_version = ""

    def setup(self) -> None:
        """As the base class, with a limit on lines."""
        super().setup()
        self._lines = _LimitedLines(self.rfile)
        self.rfile = cast("Any", self._lines)

    def handle_one_request(self) -> None:
        """As the base class; the limit applies to each request."""
        self._lines.left = _HEADER_BYTES
        try:
            super().handle_one_request()
        except LineTooLong:  # the very first line: the base class handles the others
            self.requestline, self.request_version, self.command = "", self.protocol_version, ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            self.close_connection = True


class _LimitedLines:
    """A stream with a limit on the total of its lines. Callers that read by length limit that themselves."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.left = _HEADER_BYTES
        self.read = inner.read
        self.close = inner.close

    def readline(self, limit: int = -1) -> bytes:
        most = self.left + 1 if limit < 0 else min(limit, self.left + 1)
        line: bytes = self._inner.readline(most)
        self.left -= len(line)
        if self.left < 0:
            raise LineTooLong("header")
        return line
