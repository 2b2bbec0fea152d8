"""A small Kubernetes API server of the tests' own, over real HTTP or TLS: nodes, pods, leases, secrets and classes.

It keeps to the rules of the real one wherever our code could notice: resource versions, paged lists, watches with
bookmarks and 410 Gone, optimistic uids, the status subresource, three kinds of patches, pods that wait for a kubelet to
end them, the taint on new nodes, and ``Status`` objects for refusals. What it does was compared with a real
kube-apiserver. It does not validate, and has one user with one token, who may do what is not in ``denied``.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.kube.fake_store import Json, RefusedError, Store, json_patched, merged

TOKEN = "not-a-secret"
_PATH = re.compile(
    r"/(?:api/v1|apis/coordination\.k8s\.io/v1|apis/machine\.sapcloud\.io/v1alpha1)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>nodes|pods|leases|secrets|machineclasses)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>status))?"
)


@dataclass(frozen=True)
class Request:
    """A call that was made."""

    method: str
    plural: str
    name: str
    query: dict[str, str]
    at: float  # on the monotonic clock
    watch_generation: int  # of the server when this came
    namespace: str = ""  # empty: all of them

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def verb(self) -> str:
        """As rights call it."""
        if self.method == "GET":
            return "watch" if self.is_watch else "get" if self.name else "list"
        return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[self.method]


@dataclass
class Fault:
    """An answer that is given instead of the right one, to the next calls that match."""

    matches: Callable[[Request], bool]
    code: int
    body: bytes
    headers: dict[str, str]
    times: int


class FakeApi:
    """The server. It keeps its port and its objects over stop and start."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.token = TOKEN  # that is accepted at present
        self.denied: set[tuple[str, str]] = set()  # verb and resource
        self._tls = tls
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.page_limit = 1000  # the most objects in a page, whatever is asked for
        self.sends_bookmarks = True
        self.most_at_once = 0  # calls, without watches
        self._port = 0
        self._server: _Server | None = None

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), self)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._port

    def stop(self) -> None:
        """Takes the server away, with all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.is_closing = True
            server.shutdown()
            server.server_close()
            self._sever(server)

    def sever(self) -> None:
        """Breaks all connections, and goes on."""
        assert self._server is not None
        self._sever(self._server)

    def end_watches(self) -> None:
        """Ends all watches in an orderly way, as the real server does from time to time."""
        assert self._server is not None
        with self.store.changed:
            self._server.watch_generation += 1
            self.store.changed.notify_all()

    def refuse(
        self,
        matches: Callable[[Request], bool],
        code: int,
        body: Json | bytes = b"",
        *,
        times: int = 1,
        headers: dict[str, str] | None = None,
    ) -> None:
        """The next calls that match are answered with this."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "text/plain" if isinstance(body, bytes) else "application/json"}
        self.faults.append(Fault(matches, code, data, kind | (headers or {}), times))

    def watches(self, plural: str) -> list[Request]:
        return [request for request in self.requests if request.is_watch and request.plural == plural]

    def lists(self, plural: str) -> list[Request]:
        reads = [request for request in self.requests if request.method == "GET" and request.plural == plural]
        return [request for request in reads if not request.is_watch and "continue" not in request.query]

    def kubeconfig(self, directory: Path) -> Path:
        """Writes a file with which clients find this server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "somebody", "user": {"token": TOKEN}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "somebody"}}],
            "current-context": "fake",
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))  # JSON is YAML
        return path

    def _sever(self, server: _Server) -> None:
        for connection in list(server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: FakeApi) -> None:
        self.api = api
        self.connections: set[socket.socket] = set()
        self.is_closing = False
        self.watch_generation = 0
        self.calls = 0  # that are being answered
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _api(self) -> FakeApi:
        return cast("_Server", self.server).api

    def setup(self) -> None:
        super().setup()
        cast("_Server", self.server).connections.add(self.connection)

    def finish(self) -> None:
        cast("_Server", self.server).connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called above
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = urlsplit(self.path)
        if self._is_special(parts.path, body):
            return
        match = _PATH.fullmatch(parts.path)
        if match is None:
            self._send(404, b"404 page not found", {"Content-Type": "text/plain"})
            return
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        generation = cast("_Server", self.server).watch_generation
        space = match["namespace"] or ""
        request = Request(
            self.command, match["plural"], match["name"] or "", query, time.monotonic(), generation, namespace=space
        )
        self._api.requests.append(request)
        if fault := self._fault(request):
            self._send(fault.code, fault.body, fault.headers)
        elif self.headers.get("Authorization") != f"Bearer {self._api.token}":
            self._send_json(401, RefusedError(401, "Unauthorized", "Unauthorized").status)
        elif (request.verb, request.plural) in self._api.denied:
            what = f'cannot {request.verb} resource "{request.plural}" in API group ""'
            message = f'{request.plural} is forbidden: User "somebody" {what} at the cluster scope'
            self._send_json(403, RefusedError(403, "Forbidden", message).status)
        elif request.is_watch:
            self._watch(request)
        else:
            key = (match["plural"], match["namespace"] or "", match["name"] or "")
            self._answer(key, match["subresource"] or "", query, body)

    def _is_special(self, path: str, body: bytes) -> bool:
        """What is not about objects: the release, and what the user may do."""
        if path == "/version":
            self._send_json(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"})
        elif path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            asked = json.loads(body)["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self._api.denied
            self._send_json(201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}})
        else:
            return False
        return True

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as they are called above

    def _answer(self, key: tuple[str, str, str], subresource: str, query: dict[str, str], body: bytes) -> None:
        code = 201 if self.command == "POST" else 200
        self._count(1)
        try:
            answer = self._do(key, subresource, query, body)
        except RefusedError as refused:
            code, answer = refused.code, refused.status
        finally:
            self._count(-1)  # before the answer, after which the next call may come
        self._send_json(code, answer)

    def _count(self, difference: int) -> None:
        server = cast("_Server", self.server)
        with self._api.store.changed:
            server.calls += difference
            self._api.most_at_once = max(self._api.most_at_once, server.calls)

    def _do(self, key: tuple[str, str, str], subresource: str, query: dict[str, str], body: bytes) -> Json:
        store = self._api.store
        match self.command:
            case "POST":
                return store.create(key[0], key[1], json.loads(body))
            case "PATCH":
                patch = json.loads(body)
                style = self.headers["Content-Type"]

                def apply(old: Json) -> Json:
                    if style == "application/json-patch+json":
                        return json_patched(old, patch)
                    strategic = style == "application/strategic-merge-patch+json"
                    return cast("Json", merged(old, patch, strategic=strategic))

                return store.patch(key, apply, status_only=subresource == "status")
            case "DELETE":
                return store.delete(key, json.loads(body) if body else {})
            case _ if key[2]:
                found = store.find(key[0], key[2], key[1])
                if found is None:
                    raise RefusedError(404, "NotFound", f'{key[0]} "{key[2]}" not found')
                return found
        return self._page(key, query)

    def _page(self, key: tuple[str, str, str], query: dict[str, str]) -> Json:
        """All pages show the moment of the first; a token that is too old is 410, as in etcd after a compaction."""
        store = self._api.store
        with store.changed:
            version, begin = map(int, query.get("continue", f"{store.version}:0").split(":"))
            if version < store.oldest:
                raise RefusedError(410, "Expired", "The provided continue parameter is too old")
            items = [item for item in store.items(key[0], key[1]) if _selected(item, query)]
        limit = min(int(query.get("limit", "1000000")), self._api.page_limit)
        meta = {"resourceVersion": str(version)}
        if begin + limit < len(items):
            meta["continue"] = f"{version}:{begin + limit}"
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items[begin : begin + limit]}

    def _watch(self, request: Request) -> None:
        server, store = cast("_Server", self.server), self._api.store
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = int(request.query["resourceVersion"])
        end = time.monotonic() + float(request.query.get("timeoutSeconds", "60"))
        while True:
            with store.changed:
                if seen < store.oldest:
                    gone = RefusedError(410, "Expired", f"too old resource version: {seen} ({store.oldest})")
                    self._chunk({"type": "ERROR", "object": gone.status})
                    break
                events = list(store.events_after(seen, request.plural))
                if not events:
                    seen = store.version
                    is_stale = server.watch_generation != request.watch_generation
                    if server.is_closing or is_stale or time.monotonic() > end:
                        break
                    store.changed.wait(0.2)
                    continue
            for event in events:
                seen = event.version
                space = event.object["metadata"].get("namespace", "")
                if request.namespace in ("", space) and _selected(event.object, request.query):
                    self._chunk({"type": event.type, "object": event.object})
        self._last_bookmark(request, seen)
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def _last_bookmark(self, request: Request, seen: int) -> None:
        if self._api.sends_bookmarks and request.query.get("allowWatchBookmarks") == "true":
            stump: Json = {"metadata": {"resourceVersion": str(seen), "creationTimestamp": None}}
            if request.plural == "pods":
                stump["spec"] = {"containers": None}  # exactly as the real server sends it
            self._chunk({"type": "BOOKMARK", "object": stump})

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

    def _send_json(self, code: int, answer: Json) -> None:
        self._send(code, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        with suppress(OSError):
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


def _selected(item: Json, query: dict[str, str]) -> bool:
    selector = query.get("fieldSelector", "")
    if not selector:
        return True
    assert selector == "spec.nodeName!=", f"the fake knows only one selector, not {selector!r}"
    spec: Any = item.get("spec", {})
    return bool(spec.get("nodeName"))
