"""What machines tell the host over HTTP, and what they get from it in the place of an installer."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

__all__ = ["Report", "ReportedFile", "Reports", "check_cloud_init", "report_of"]

_LARGEST: Final = 4 << 20  # bytes of a report
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFile:
    """A file of a machine."""

    text: str
    mode: int
    owner: str


Report = Mapping[str, ReportedFile]  # by path


def report_of(archive: bytes) -> Report:
    """The files of an archive as ``tar`` makes it."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            if content is not None:
                owner = f"{entry.uname}:{entry.gname}"
                text = content.read().decode("utf-8", "replace")
                found[f"/{entry.name}"] = ReportedFile(text=text, mode=entry.mode, owner=owner)
    return found


def check_cloud_init(report: Report, *, status: str = "done") -> None:
    """By its own word: it has ended, and the user data is valid to it."""
    said = json.loads(report["/run/report/status.json"].text)
    errors = said["errors"]
    assert said["status"] == status, f"cloud-init is {said['status']} and not {status}: {errors}"
    assert status == "error" or not said["recoverable_errors"], f"cloud-init warns: {said['recoverable_errors']}"
    assert bool(errors) == (status == "error"), f"cloud-init has the errors {errors}"
    schema = report["/run/report/schema"].text
    assert "Valid schema user-data" in schema, f"cloud-init says of the user data: {schema}"
    assert "Invalid" not in schema, f"cloud-init says of the user data: {schema}"


class Reports:
    """A server on the loopback device. Use :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._answers: dict[str, list[str]] = {}
        self._reports: dict[str, Report] = {}
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Serves in a thread of its own, at a free port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Ends it. Nothing happens when it does not run."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.server_address[1])

    def answer(self, path: str, *texts: str) -> None:
        """With one text after another, and the last one again and again; an empty one says that there is none now."""
        with self._turn:
            self._answers[path] = list(texts)

    def of(self, machine: str) -> Report | None:
        """What a machine has reported, if it has."""
        with self._turn:
            return self._reports.get(machine)

    def _next(self, path: str) -> str:
        with self._turn:
            texts: Sequence[str] = self._answers.get(path, [""])
            return texts[0] if len(texts) == 1 else self._answers[path].pop(0)

    def _keep(self, machine: str, archive: bytes) -> None:
        report = report_of(archive)
        with self._turn:
            self._reports[machine] = report

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        reports = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = reports._next(self.path)
                self._say(200 if text else _UNAVAILABLE, text.encode())

            def do_PUT(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                if size > _LARGEST:
                    self._say(413, b"")
                    return
                reports._keep(self.path.strip("/"), self.rfile.read(size))
                self._say(200, b"")

            def log_message(self, *_: object) -> None:
                """It says nothing."""

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
