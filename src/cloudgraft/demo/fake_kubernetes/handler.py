"""The HTTP side: who calls, whether that is allowed, and answers in the API's own form."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs, urlsplit

from cloudgraft.demo.fake_kubernetes.calls import Fault, Request
from cloudgraft.demo.fake_kubernetes.operations import answer
from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Route
from cloudgraft.demo.fake_kubernetes.selectors import selection
from cloudgraft.demo.fake_kubernetes.users import User
from cloudgraft.demo.fake_kubernetes.watching import Watching

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.server import KubeApi

__all__ = ["HttpServer"]


class HttpServer(ThreadingHTTPServer):
    """A port, and a thread for each connection to it."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: KubeApi) -> None:
        self.api = api
        self.connections: set[socket.socket] = set()
        self.is_closing = False
        self.watch_generation = 0
        self.calls = 0  # that are being answered
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _http(self) -> HttpServer:
        return cast("HttpServer", self.server)

    @property
    def _api(self) -> KubeApi:
        return self._http.api

    def setup(self) -> None:
        super().setup()
        self._http.connections.add(self.connection)

    def finish(self) -> None:
        self._http.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called above
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = urlsplit(self.path)
        user = self._api.users.by_header(self.headers.get("Authorization"))
        if self._is_special(parts.path, body, user):
            return
        route = self._api.store.resources.route(parts.path)
        if route is None:
            self._send(404, b"404 page not found", {"Content-Type": "text/plain"})
            return
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        request = self._request(route, query, user)
        self._api.requests.append(request)
        if fault := self._fault(request):
            self._send(fault.code, fault.body, fault.headers)
        elif refused := self._unwelcome(request, user):
            self._send_json(refused.code, refused.status)
        elif request.is_watch:
            self._watch(route, request)
        else:
            self._answer(route, request, body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as they are called above

    def _request(self, route: Route, query: dict[str, str], user: User | None) -> Request:
        return Request(
            self.command,
            route.resource.plural,
            route.name,
            query,
            time.monotonic(),
            self._http.watch_generation,
            namespace=route.namespace,
            group=route.resource.group,
            subresource=route.subresource,
            user=user.name if user else "",
        )

    def _unwelcome(self, request: Request, user: User | None) -> RefusedError | None:
        if user is None:
            return RefusedError(401, "Unauthorized", "Unauthorized")
        sub, space = request.subresource, request.namespace
        if self._api.users.may(user, request.verb, request.plural, subresource=sub, namespace=space):
            return None
        what = f'cannot {request.verb} resource "{request.plural}" in API group "{request.group}"'
        where = f'in the namespace "{space}"' if space else "at the cluster scope"
        message = f'{request.plural} is forbidden: User "{user.name}" {what} {where}'
        return RefusedError(403, "Forbidden", message)

    def _is_special(self, path: str, body: bytes, user: User | None) -> bool:
        """What is not about objects: the release, health, and what the user may do."""
        if path == "/version":
            self._send_json(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"})
        elif path in {"/healthz", "/livez", "/readyz"}:
            self._send(200, b"ok", {"Content-Type": "text/plain"})
        elif path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            if user is None:
                self._send_json(401, RefusedError(401, "Unauthorized", "Unauthorized").status)
                return True
            asked = json.loads(body)["spec"]["resourceAttributes"]
            more = {"subresource": asked.get("subresource", ""), "namespace": asked.get("namespace", "")}
            allowed = self._api.users.may(user, asked["verb"], asked["resource"], **more)
            self._send_json(201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}})
        else:
            return False
        return True

    def _answer(self, route: Route, request: Request, body: bytes) -> None:
        code = 201 if self.command == "POST" else 200
        self._count(1)
        try:
            told = answer(self._api, route, request, body, self.headers.get("Content-Type", ""))
        except RefusedError as refused:
            code, told = refused.code, refused.status
        finally:
            self._count(-1)  # before the answer, after which the next call may come
        self._send_json(code, told)

    def _count(self, difference: int) -> None:
        with self._api.store.changed:
            self._http.calls += difference
            self._api.most_at_once = max(self._api.most_at_once, self._http.calls)

    def _watch(self, route: Route, request: Request) -> None:
        try:
            matches = selection(route.resource, request.query)
        except RefusedError as refused:
            self._send_json(refused.code, refused.status)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        watching = Watching(self._api, route, request, matches)
        for line in watching.lines(lambda: self._is_over(request)):
            self._chunk(line)
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def _is_over(self, request: Request) -> bool:
        return self._http.is_closing or self._http.watch_generation != request.watch_generation

    def _chunk(self, event: Json) -> None:
        data = json.dumps(event).encode() + b"\n"
        with suppress(OSError):
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def _fault(self, request: Request) -> Fault | None:
        for fault in self._api.faults:
            if fault.times > 0 and fault.matches(request):
                fault.times -= 1
                return fault
        return None

    def _send_json(self, code: int, told: Json) -> None:
        self._send(code, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        with suppress(OSError):
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
