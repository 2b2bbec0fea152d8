"""The other side of a webhook, on a port of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """The other side: keeps what it gets, and answers with the statuses that it is told to."""

    statuses: list[int] = field(default_factory=list)  # for the next requests; 200 afterwards
    got: list[tuple[Mapping[str, str], Any]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the base class wants this name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.got.append(({**self.headers, "path": self.path}, body))
                receiver.may_answer.wait(20)
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Says nothing."""

        return Handler


def serving(receiver: Receiver, wrap: Callable[[Any], Any] = lambda socket: socket) -> Iterator[Receiver]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), receiver.handler())
    server.socket = wrap(server.socket)
    receiver.address = f"127.0.0.1:{server.server_address[1]}"
    receiver.may_answer.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield receiver
    receiver.may_answer.set()
    server.shutdown()
    server.server_close()
    thread.join()
