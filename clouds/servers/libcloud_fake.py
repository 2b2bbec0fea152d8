"""Small fakes of the clouds that only libcloud speaks to: enough to create, list and delete machines, over a socket.

They were written from what libcloud sends and reads and from the clouds' public descriptions. What a test looks at is
the requests that came in. They prove that a request has what it must have, and nothing about the real cloud.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Answer", "Asked", "Fake", "FakeCloud", "Fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes = field(repr=False)

    @property
    def body(self) -> Any:
        """Of JSON."""
        return json.loads(self.raw)


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and JSON, or text."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong with requests that have this method and this in their path."""

    method: str
    path: str
    answer: Answer | None = None  # in the place of what would be done
    is_reset: bool = False  # do it, and break the connection
    is_half: bool = False  # do it, and break off in the middle of the answer
    hold: threading.Event | None = None  # do it, and do not answer until this is set


class FakeCloud(ABC):
    """What one cloud answers."""

    def __init__(self) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self._last = 100

    @abstractmethod
    def answer(self, asked: Asked) -> Answer:
        """To one request; called by one thread at a time."""

    def names(self) -> list[str]:
        """Of its machines."""
        return [self.name_of(machine) for machine in self.machines.values()]

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """As the cloud shows it."""
        return str(machine["name"])

    def new_id(self) -> int:
        """One that was never used."""
        self._last += 1
        return self._last


class Fake:
    """A fake cloud on a port of its own. Use it as a context."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self.asked: list[Asked] = []
        self.connections = 0  # that are open
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        """Serves."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def trouble(self, **fault: Any) -> Iterator[None]:
        """A fault, for as long as the context lasts."""
        one = Fault(**fault)
        self._faults.append(one)
        try:
            yield
        finally:
            self._faults.remove(one)
            if one.hold is not None:
                one.hold.set()

    def always(self, **fault: Any) -> None:
        """A fault that stays."""
        self._faults.append(Fault(**fault))

    def sent(self, method: str, path: str) -> list[Asked]:
        """The requests with this method and this in their path or query."""
        return [one for one in self.asked if one.method == method and (path in one.path or path in one.query.values())]

    def answered(self, asked: Asked) -> tuple[Answer, Fault | None]:
        """What is said, and what goes wrong with it."""
        with self._lock:
            self.asked.append(asked)
            fault = next((one for one in self._faults if asked in self.matching(one, asked)), None)
            if fault is not None and fault.answer is not None:
                return fault.answer, None
            return self.cloud.answer(asked), fault

    def count(self, step: int) -> None:
        """A connection was opened, or closed."""
        with self._lock:
            self.connections += step

    @staticmethod
    def matching(fault: Fault, asked: Asked) -> list[Asked]:
        """The request, when the fault is for it."""
        is_meant = fault.path in asked.path or fault.path in asked.query.values()
        return [asked] if is_meant and fault.method == asked.method else []


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each answer

        def setup(self) -> None:
            fake.count(1)
            super().setup()

        def finish(self) -> None:
            fake.count(-1)
            super().finish()

        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def do_PATCH(self) -> None:
            self._do()

        def do_PUT(self) -> None:
            self._do()

        def do_DELETE(self) -> None:
            self._do()

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def _do(self) -> None:
            parts = urlsplit(self.path)
            asked = Asked(
                method=self.command,
                path=parts.path,
                query=dict(parse_qsl(parts.query)),
                headers={key.lower(): value for key, value in self.headers.items()},
                raw=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            )
            answer, fault = fake.answered(asked)
            if fault is not None and fault.hold is not None:
                fault.hold.wait()
            if fault is not None and (fault.is_reset or fault.hold is not None):
                _break(self.connection)
                self.close_connection = True
                return
            self._send(answer, is_half=fault is not None and fault.is_half)

        def _send(self, answer: Answer, *, is_half: bool) -> None:
            is_text = isinstance(answer.body, str)
            body = answer.body.encode() if is_text else b"" if answer.body is None else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/html" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if is_half else body)
            self.close_connection = self.close_connection or is_half

    return Handler


def _break(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
