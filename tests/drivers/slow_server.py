"""A server whose answers never end, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@contextlib.contextmanager
def slow_server(begins: bytes) -> Iterator[str]:
    """Says this, and then one byte now and then, for as long as somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        is_over = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(begins)
                while not is_over.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            is_over.set()
            thread.join()
