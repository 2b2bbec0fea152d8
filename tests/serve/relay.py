"""A wire tap between one server and its cloud: which calls that server makes, and no other."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Passes everything on, in threads of its own, and remembers the first line of every request."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.requests: list[str] = []
        self._unanswered: set[socket.socket] = set()
        relay = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, method: str) -> int:
        """How many requests of that kind came so far."""
        return sum(request.startswith(method) for request in self.requests)

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._unanswered)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection(self._target) as cloud:
            answering = threading.Thread(target=self._answer, args=(cloud, client), daemon=True)
            answering.start()
            with contextlib.suppress(OSError):
                # A client waits for an answer before it asks again: each piece begins a request, or goes on with one.
                while piece := client.recv(1 << 16):
                    line = piece.split(b"\r\n", 1)[0]
                    if line.endswith(b"HTTP/1.1"):
                        self.requests.append(line.decode())
                        self._unanswered.add(client)
                    cloud.sendall(piece)
                cloud.shutdown(socket.SHUT_WR)
            answering.join()

    def _answer(self, cloud: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := cloud.recv(1 << 16):
                self._unanswered.discard(client)
                client.sendall(piece)
            client.shutdown(socket.SHUT_RDWR)
