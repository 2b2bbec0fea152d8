"""The fake over HTTP: authentication, paging, rate limit headers, faults, and ways to look behind the API."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from clouds.servers.hetzner_fake import data
from clouds.servers.hetzner_fake.faults import Fault, Faults, Kind
from clouds.servers.hetzner_fake.project import Json, Project, RefusedError

__all__ = ["FakeHetzner"]

_LISTS: Final[dict[str, list[Json]]] = {
    "server_types": data.SERVER_TYPES,
    "images": data.IMAGES,
    "locations": data.LOCATIONS,
    "networks": data.NETWORKS,
    "firewalls": data.FIREWALLS,
    "placement_groups": data.PLACEMENT_GROUPS,
    "ssh_keys": data.SSH_KEYS,
}
_MOST_PER_PAGE: Final = 50
_LIMIT: Final = 3600  # requests per hour, as the headers tell; nothing is counted


class FakeHetzner:
    """A server on a port of this machine, in a thread of its own."""

    def __init__(self, project: Project | None = None, *, port: int = 0, host: str = "127.0.0.1") -> None:
        self.project = project or Project()
        self.faults = Faults()
        self.token = "fake-" + "t" * 59  # as long as real ones
        self.read_only_token = "fake-" + "r" * 59
        self.requests: list[tuple[str, str]] = []  # method and path of each, in order
        self.bodies: list[Json] = []  # of the creates, in order
        self.meanwhile: Callable[[int], None] = lambda _: None  # called before each request, with how many there were
        self.hung = threading.Event()  # set: what hangs is let go
        self._server = _Server((host, port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

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

    def count(self, method: str, path: str) -> int:
        """How many such requests there were."""
        return self.requests.count((method, path))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fake: FakeHetzner) -> None:
        self.fake = fake
        super().__init__(address, _Handler)

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
        path, query = url.path.removeprefix("/v1"), parse_qs(url.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path.startswith("/fake/"):
            self._answer(200, _behind(fake, method, url.path, body))
            return
        fake.meanwhile(len(fake.requests))
        fake.requests.append((method, path))
        fault = fake.faults.take(method, path, int(query.get("page", ["1"])[0]))
        if fault is not None and self._breaks_before(fault):
            return
        try:
            status, answer = self._done(method, path, query, body)
        except RefusedError as error:
            status, answer = error.status, _refusal(error)
        if fault is not None and self._breaks_after(fault, status, answer):
            return
        self._answer(status, answer)

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

    def _breaks_after(self, fault: Fault, status: int, answer: Json) -> bool:
        match fault.kind:
            case Kind.ERROR_AFTER:
                self._fail(fault)
            case Kind.RESET_AFTER:
                self._reset()
            case Kind.HANG_AFTER:
                self.server.fake.hung.wait()
                self._reset()
            case Kind.SHORT_PAGE:
                entries = next(value for value in answer.values() if isinstance(value, list))
                entries.pop()
                self._answer(status, answer)
            case Kind.HALF_BODY:
                text = json.dumps(answer).encode()
                self._send(status, {"Content-Length": str(len(text))}, text[: len(text) // 2])
                self.close_connection = True
            case Kind.EMPTY:
                self._answer(status, {})
            case _:
                self._send(status, {"Content-Length": "9"}, b"<html>no\n")
        return True

    def _fail(self, fault: Fault) -> None:
        text = f"<html>{fault.message}</html>".encode()
        if fault.code:
            text = json.dumps({"error": {"code": fault.code, "message": fault.message, "details": None}}).encode()
        self._send(fault.status, {**fault.headers, "Content-Length": str(len(text))}, text)

    def _reset(self) -> None:
        """Breaks the connection at once, as a host does that is gone."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(self, status: int, answer: Json) -> None:
        text = json.dumps(answer).encode()
        self._send(status, {"Content-Type": "application/json", "Content-Length": str(len(text))}, text)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        limits = {"RateLimit-Limit": _LIMIT, "RateLimit-Remaining": _LIMIT - 1, "RateLimit-Reset": int(time.time()) + 1}
        self.send_response(status)
        for key, value in {**limits, **headers}.items():
            self.send_header(key, str(value))
        self.end_headers()
        self.wfile.write(body)

    def _done(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Json]:
        fake = self.server.fake
        _check_token(fake, method, self.headers.get("Authorization", ""))
        if method == "GET":
            return 200, _read(fake.project, path, query)
        return _changed(fake, method, path, body)


def _check_token(fake: FakeHetzner, method: str, header: str) -> None:
    if header not in (f"Bearer {fake.token}", f"Bearer {fake.read_only_token}"):
        raise RefusedError(401, "unauthorized", "unable to authenticate")
    if method != "GET" and header != f"Bearer {fake.token}":
        raise RefusedError(403, "forbidden", "insufficient permissions for this request")


def _refusal(error: RefusedError) -> Json:
    fields = {"fields": [{"name": error.field, "messages": [str(error)]}]}
    return {"error": {"code": error.code, "message": str(error), "details": fields if error.field else None}}


def _read(project: Project, path: str, query: dict[str, list[str]]) -> Json:
    kind, _, number = path.removeprefix("/").partition("/")
    if kind == "pricing":
        return {"pricing": data.PRICING}
    entries = _entries(project, kind, query)
    if not number:
        return _paged(kind, entries, query)
    found = [one for one in entries if str(one["id"]) == number]
    if not found:
        raise RefusedError(404, "not_found", f"{kind.removesuffix('s')} with ID '{number}' not found")
    return {kind.removesuffix("s"): found[0]}


def _entries(project: Project, kind: str, query: dict[str, list[str]]) -> list[Json]:
    if kind == "servers":
        return project.servers(query)
    known = {**_LISTS, "actions": project.actions(), "primary_ips": list(project.primary_ips.values())}
    if kind not in known:
        raise RefusedError(404, "not_found", f"{kind} not found")
    keys = [key for key in ("id", "name", "architecture", "type") if key in query]
    return [one for one in known[kind] if all(str(one[key]) in query[key] for key in keys)]


def _changed(fake: FakeHetzner, method: str, path: str, body: bytes) -> tuple[int, Json]:
    project = fake.project
    try:
        given: Json = json.loads(body) if body else {}
    except ValueError:
        raise RefusedError(400, "json_error", "invalid JSON") from None
    match method, *path.removeprefix("/").split("/"):
        case "POST", "servers":
            fake.bodies.append(given)
            return 201, project.create(given)
        case "DELETE", "servers", number:
            return 200, project.delete(_number(number))
        case "PUT", "servers", number:
            return 200, project.update(_number(number), given)
        case "POST", "servers", number, "actions", command:
            return 201, project.act(_number(number), command, given)
    raise RefusedError(404, "not_found", f"{method} {path} not found")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise RefusedError(404, "not_found", f"{text} not found")
    return int(text)


def _paged(key: str, entries: list[Json], query: dict[str, list[str]]) -> Json:
    page = max(1, int(query.get("page", ["1"])[0]))
    size = min(_MOST_PER_PAGE, max(1, int(query.get("per_page", ["25"])[0])))
    last = max(1, -(-len(entries) // size))
    about = {
        "page": page,
        "per_page": size,
        "previous_page": page - 1 if page > 1 else None,
        "next_page": page + 1 if page < last else None,
        "last_page": last,
        "total_entries": len(entries),
    }
    return {key: entries[(page - 1) * size : page * size], "meta": {"pagination": about}}


def _behind(fake: FakeHetzner, method: str, path: str, body: bytes) -> Json:
    """For judges of another process: what there is, and what is to go wrong."""
    if method == "PUT" and path == "/fake/faults":
        fake.faults.order(*(Fault.from_json(one) for one in json.loads(body)))
    return {"alive": fake.project.alive(), "ever": fake.project.ever, "requests": fake.requests}
