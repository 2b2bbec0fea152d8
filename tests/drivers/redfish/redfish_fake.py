"""A controller over a real socket: the endpoints of Redfish that the driver uses, and faults on command.

It is a fake of ours, written from the public schemas. One server has many systems, as sushy-tools' emulator has.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

USER, PASSWORD = "operator", "correct-horse-battery"
READER, READER_PASSWORD = "reader", "only-reading-things"
ROOT = "/redfish/v1"


@dataclass(slots=True)
class FakeSystem:
    """One host, and what its controller knows of it."""

    id: str
    power: str | None = "Off"
    cpus: int | None = 8
    memory: float | None = 32.0
    resets: Sequence[str] | None = ("On", "ForceOff", "GracefulShutdown")
    boots: Sequence[str] = ("None", "Pxe", "Cd", "Hdd")
    heeds_shutdown: bool = True  # whether it goes off by itself when it is asked to
    rise_time: float = 0.0  # seconds until it shows that it was switched on
    on_at: float | None = None
    media: dict[str, str] = field(default_factory=lambda: {"Cd": "", "Usb": ""})
    boot: dict[str, Any] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)  # the resets, in order

    def settle(self) -> None:
        if self.on_at is not None and time.monotonic() >= self.on_at:
            self.power, self.on_at = "On", None

    def is_on(self) -> bool:
        self.settle()
        return self.power == "On"

    def reset(self, kind: str) -> None:
        self.history.append(kind)
        if kind in ("On", "ForceOn"):
            self.on_at = time.monotonic() + self.rise_time
        elif kind == "ForceOff" or (kind == "GracefulShutdown" and self.heeds_shutdown):
            self.power = "Off"  # what is on its way up comes up all the same
        self.settle()


@dataclass(slots=True)
class Fault:
    """What happens to requests of a method whose path has a part. Kinds: error, reset, reset after, hang, garbage."""

    kind: str
    method: str = ""
    part: str = ""
    times: int = -1
    status: int = 500
    message: str = "Base.1.8.GeneralError"
    headers: dict[str, str] = field(default_factory=dict)

    def meets(self, method: str, path: str) -> bool:
        if self.times == 0 or self.method not in ("", method) or self.part not in path:
            return False
        self.times -= 1
        return True


class FakeRedfish:
    """The server, in a thread of its own."""

    def __init__(self, *systems: FakeSystem) -> None:
        self.systems = {system.id: system for system in systems}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.sessions: list[str] = []
        self.let_go = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def changes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fake: FakeRedfish) -> None:
        self.fake = fake
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library calls it so
        """Nothing is written for each request."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        fake = self.server.fake
        path = self.path.rstrip("/")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        fake.requests.append((method, path))
        fault = next((one for one in fake.faults if one.meets(method, path)), None)
        if fault is not None and fault.kind == "reset":
            return self._break()
        if fault is not None and fault.kind == "hang":
            fake.let_go.wait(60)
            return self._break()
        if fault is not None and fault.kind == "error":
            return self._answer(fault.status, _error(fault.message), fault.headers)
        try:
            status, answer, headers = self._answered(method, path, body)
        except _RefusedError as error:
            status, answer, headers = error.status, _error(error.message), {}
        if fault is not None and fault.kind == "reset after":
            return self._break()
        if fault is not None and fault.kind == "garbage":
            answer = "<html>restarting</html>"
        return self._answer(status, answer, headers)

    def _answered(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, object, dict[str, str]]:
        fake = self.server.fake
        if (method, path) == ("GET", ROOT):
            return 200, _root(), {}
        if (method, path) == ("POST", f"{ROOT}/SessionService/Sessions"):
            if (body.get("UserName"), body.get("Password")) != (USER, PASSWORD):
                raise _RefusedError(401, "Base.1.8.NoValidSession")
            fake.sessions.append(f"token-{len(fake.sessions)}")
            place = f"{ROOT}/SessionService/Sessions/{len(fake.sessions)}"
            return 201, {"Id": "1"}, {"X-Auth-Token": fake.sessions[-1], "Location": place}
        self._expect_account(method)
        return (*self._resource(method, path.removeprefix(f"{ROOT}/").split("/"), body), {})

    def _expect_account(self, method: str) -> None:
        if self.headers.get("X-Auth-Token") in self.server.fake.sessions:
            return
        given = self.headers.get("Authorization", "")
        if given == _basic(READER, READER_PASSWORD):
            if method != "GET":
                raise _RefusedError(403, "Base.1.8.InsufficientPrivilege")
        elif given != _basic(USER, PASSWORD):
            raise _RefusedError(401, "Base.1.8.NoValidSession")

    def _resource(self, method: str, parts: list[str], body: dict[str, Any]) -> tuple[int, object]:
        systems = self.server.fake.systems
        match [method, *parts]:
            case ["GET", "SessionService"]:
                return 200, {"Id": "s", "Name": "s", "Sessions": _link("SessionService/Sessions")}
            case ["DELETE", "SessionService", "Sessions", number]:
                self.server.fake.sessions[int(number) - 1] = "ended"
                return 204, None
            case ["GET", "Systems"]:
                return 200, {"Name": "all", "Members": [_link(f"Systems/{one}") for one in systems]}
            case [_, "Systems", one, *rest] if one in systems:
                return _of_system(systems[one], method, rest, body)
        raise _RefusedError(404, "Base.1.8.ResourceMissingAtURI")

    def _break(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _answer(self, status: int, body: object, headers: dict[str, str]) -> None:
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _of_system(system: FakeSystem, method: str, rest: list[str], body: dict[str, Any]) -> tuple[int, object]:
    match [method, *rest]:
        case ["GET"]:
            return 200, _system(system)
        case ["PATCH"]:
            if body["Boot"]["BootSourceOverrideTarget"] not in system.boots:
                raise _RefusedError(400, "Base.1.8.PropertyValueNotInList")
            system.boot.update(body["Boot"])
            return 204, None
        case ["POST", "Actions", "ComputerSystem.Reset"]:
            if system.resets is not None and body["ResetType"] not in system.resets:
                raise _RefusedError(400, "Base.1.8.ActionParameterValueNotInList")
            system.reset(body["ResetType"])
            return 204, None
        case ["GET", "VirtualMedia"]:
            return 200, {"Name": "m", "Members": [_link(f"Systems/{system.id}/VirtualMedia/{m}") for m in system.media]}
        case ["GET", "VirtualMedia", drive]:
            return 200, _drive(system, drive)
        case ["POST", "VirtualMedia", drive, "Actions", action]:
            system.media[drive] = body["Image"] if action == "VirtualMedia.InsertMedia" else ""
            return 204, None
    raise _RefusedError(404, "Base.1.8.ResourceMissingAtURI")


def _system(system: FakeSystem) -> dict[str, Any]:
    system.settle()
    reset: dict[str, Any] = {"target": f"{ROOT}/Systems/{system.id}/Actions/ComputerSystem.Reset"}
    if system.resets is not None:
        reset["ResetType@Redfish.AllowableValues"] = list(system.resets)
    return {
        "@odata.id": f"{ROOT}/Systems/{system.id}",
        "Id": system.id,
        "Name": system.id,
        "PowerState": system.power,
        "ProcessorSummary": {"Count": 2, "LogicalProcessorCount": system.cpus},
        "MemorySummary": {"TotalSystemMemoryGiB": system.memory},
        "Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": list(system.boots), "HttpBootUri": None},
        "VirtualMedia": _link(f"Systems/{system.id}/VirtualMedia"),
        "Actions": {"#ComputerSystem.Reset": reset},
    }


def _drive(system: FakeSystem, drive: str) -> dict[str, Any]:
    actions = f"{ROOT}/Systems/{system.id}/VirtualMedia/{drive}/Actions"
    return {
        "Id": drive,
        "Name": drive,
        "MediaTypes": ["CD", "DVD"] if drive == "Cd" else ["Floppy", "USBStick"],
        "Image": system.media[drive] or None,
        "Inserted": bool(system.media[drive]),
        "Actions": {
            f"#VirtualMedia.{verb}": {"target": f"{actions}/VirtualMedia.{verb}"}
            for verb in ("InsertMedia", "EjectMedia")
        },
    }


def _root() -> dict[str, Any]:
    return {
        "Id": "RootService",
        "Name": "root",
        "RedfishVersion": "1.8.0",
        "Systems": _link("Systems"),
        "SessionService": _link("SessionService"),
        "Links": {"Sessions": _link("SessionService/Sessions")},
    }


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": f"{ROOT}/{path}"}


def _error(message: str) -> dict[str, Any]:
    entry = {"MessageId": message, "Message": f"this is {message}", "Severity": "Critical"}
    return {"error": {"code": message, "message": "see below", "@Message.ExtendedInfo": [entry]}}


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
