"""A fake OpenStack, for what the real one cannot be made to do: faults on command, at once and without installation.

It answers what the driver asks: Keystone's tokens, Nova's servers, flavours and server groups, Glance's images,
Neutron's networks, in the forms of the compute API 2.69. It was compared with the real control plane that
``clouds.servers.openstack`` starts. It has no volumes of its own: Nova makes and deletes those.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from clouds.servers.openstack_fake_state import Answer, Project, refusal

__all__ = ["PASSWORD", "SECRET", "FakeOpenstack", "Fault"]

PASSWORD: Final = "a-password-nobody-knows"
SECRET: Final = "a-secret-nobody-knows"
_REQUEST_FROM: Final = "x-auth-token"


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong with the requests of this method whose path has this in it."""

    method: str
    path: str
    status: int = 0  # answer with this, and do nothing
    message: str = "as was asked for"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_reset: bool = False  # do it, and break the connection in the place of an answer
    is_half: bool = False  # break off in the middle of the answer
    hold: threading.Event | None = None  # do it, and answer when this is set
    times: int = 1_000_000


class FakeOpenstack:
    """One cloud with one project, on a port of its own."""

    def __init__(self, project: Project | None = None) -> None:
        """Listens; use it as a context."""
        self.project = project or Project()
        self.faults: list[Fault] = []
        self.requests: list[str] = []  # method and path of each
        self.tokens: set[str] = set()
        self.logins = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        """Serves."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops; whoever waits for an answer gets none."""
        for fault in self.faults:
            if fault.hold is not None:
                fault.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Below which everything is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def auth_url(self) -> str:
        """Of Keystone."""
        return f"{self.url}/identity/v3"

    @contextmanager
    def trouble(self, **fault: Any) -> Iterator[Fault]:
        """A fault for as long as the context lasts."""
        one = Fault(**fault)
        self.faults.append(one)
        try:
            yield one
        finally:
            if one.hold is not None:
                one.hold.set()
            self.faults.remove(one)

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault for a request, if there is one."""
        with self._lock:
            for fault in self.faults:
                if fault.method == method and fault.path in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    # -- what is asked -------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """What the cloud says."""
        parts = urlsplit(path)
        params = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            self.requests.append(f"{method} {path}")
            if parts.path.startswith("/identity"):
                return self._identity(method, parts.path, body)
            if parts.path in ("/compute/v2.1", "/compute/v2.1/", "/image", "/image/"):
                return self._versions(parts.path)
            if headers.get(_REQUEST_FROM) not in self.tokens:
                return Answer(
                    401, {"error": {"code": 401, "message": "The request you have made requires authentication."}}
                )
            return self._service(method, parts.path, params, headers, body)

    def _service(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> Answer:
        project = self.project
        if path.startswith("/compute") and headers.get("openstack-api-version") != "compute 2.69":
            return refusal(406, "computeFault", "Version 2.1 is not supported by the API.")
        routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("GET", r"/compute/v2\.1/servers/detail", lambda: project.list_servers(params, self.url)),
            ("POST", r"/compute/v2\.1/servers", lambda: project.create_server(body)),
            ("DELETE", r"/compute/v2\.1/servers/([^/]+)", project.delete_server),
            ("POST", r"/compute/v2\.1/servers/([^/]+)/metadata", lambda server: project.mark_server(server, body)),
            ("DELETE", r"/compute/v2\.1/servers/([^/]+)/metadata/([^/]+)", project.unmark_server),
            ("GET", r"/compute/v2\.1/flavors/detail", lambda: project.list_flavors(params, self.url)),
            ("GET", r"/compute/v2\.1/os-server-groups", project.list_groups),
            ("GET", r"/image/v2/images", lambda: project.list_images(params)),
            ("GET", r"/network/v2\.0/networks", lambda: project.list_networks(params)),
        ]
        for verb, pattern, call in routes:
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                return call(*match.groups())
        return refusal(404, "itemNotFound", "The resource could not be found.")

    def _identity(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        if method == "GET":
            version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": self.auth_url}]}
            return Answer(200, {"version": version})
        identity = body["auth"]["identity"]
        user = identity.get("password", {}).get("user", {})
        secret = identity.get("application_credential", {}).get("secret")
        if path != "/identity/v3/auth/tokens" or (user.get("password") != PASSWORD and secret != SECRET):
            message = "The request you have made requires authentication."
            return Answer(401, {"error": {"code": 401, "message": message, "title": "Unauthorized"}})
        self.logins += 1
        token = f"a-token-that-is-number-{self.logins}"
        self.tokens.add(token)
        return Answer(201, {"token": self._token()}, {"X-Subject-Token": token})

    def _token(self) -> dict[str, Any]:
        places = {"compute": "/compute/v2.1", "image": "/image", "network": "/network"}
        catalog = [
            {
                "type": service,
                "name": service,
                "endpoints": [
                    {"interface": "public", "region": "here", "region_id": "here", "url": f"{self.url}{place}"}
                ],
            }
            for service, place in places.items()
        ]
        return {
            "methods": ["password"],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "user": {"id": "u", "name": "judge", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": "p", "name": "lab", "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "r", "name": "member"}],
            "catalog": catalog,
        }

    def _versions(self, path: str) -> Answer:
        if path.startswith("/compute"):
            version = {"id": "v2.1", "status": "CURRENT", "version": "2.103", "min_version": "2.1"}
            links = [{"rel": "self", "href": f"{self.url}/compute/v2.1/"}]
            return Answer(200, {"version": {**version, "links": links}})
        links = [{"rel": "self", "href": f"{self.url}/image/v2/"}]
        return Answer(300, {"versions": [{"id": "v2.16", "status": "CURRENT", "links": links}]})


def _handler(cloud: FakeOpenstack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each answer, or the other side waits for the second

        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def do_DELETE(self) -> None:
            self._do()

        def log_message(self, *_: object) -> None:
            """Quiet: tests look at `requests`."""

        def _do(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = cloud.fault_for(self.command, self.path)
            if fault is not None and fault.status:
                message = {"fault": {"code": fault.status, "message": fault.message}}
                self._send(Answer(fault.status, message, fault.headers))
                return
            headers = {key.lower(): value for key, value in self.headers.items()}
            answer = cloud.answer(self.command, self.path, headers, json.loads(raw) if raw else {})
            if fault is not None and fault.hold is not None:
                fault.hold.wait()
            if fault is not None and (fault.is_reset or fault.hold is not None):
                _break(self.connection)
                self.close_connection = True
                return
            self._send(answer, is_half=fault is not None and fault.is_half)

        def _send(self, answer: Answer, *, is_half: bool = False) -> None:
            body = json.dumps(answer.body).encode() if answer.body is not None else b""
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if is_half else body)
            self.close_connection = self.close_connection or is_half

    return Handler


def _break(connection: socket.socket) -> None:
    """A reset, not an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
