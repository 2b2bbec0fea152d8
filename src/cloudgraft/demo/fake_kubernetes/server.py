"""Serves the API on a port, with users and objects."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import parse_qs, urlsplit

from cloudgraft.certs.issue import Validity, new_authority, server_pair
from cloudgraft.demo.fake_kubernetes.operations import Watching, answer
from cloudgraft.demo.fake_kubernetes.resources import Json, RefusedError, Request, Resource, Route, selection
from cloudgraft.demo.fake_kubernetes.store import Store

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.store import Store


# -- users, known by bearer token --------------------------------------------------------------------------------------


def account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


@dataclass(slots=True)
class User:
    """A user who may do everything but what is ``denied``, in ``namespaces`` only unless that is None.

    A service account may act where a binding names it, whatever role that binding gives.
    """

    name: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    denied: set[tuple[str, str]] = field(default_factory=set)  # verb and plural, or plural/subresource
    namespaces: frozenset[str] | None = None
    is_service_account: bool = False


class Users:
    """All users of a server. Tests mostly use the first."""

    def __init__(self, first: User, store: Store) -> None:
        self.first = first
        self._others: list[User] = []
        self._store = store

    def add(self, user: User) -> User:
        """Adds a user; returns it."""
        self._others.append(user)
        return user

    def of_account(self, namespace: str, name: str) -> User:
        """A service account with a new token, as TokenRequest gives it."""
        return self.add(User(account_name(namespace, name), is_service_account=True))

    def by_header(self, authorization: str | None) -> User | None:
        """The user of this header, if it is known."""
        for user in (self.first, *self._others):
            if authorization == f"Bearer {user.token}":
                gone = user.is_service_account and not self._account_exists(user.name)
                return None if gone else user
        return None

    def may(self, user: User, verb: str, plural: str, *, subresource: str = "", namespace: str = "") -> bool:
        """Whether that is allowed."""
        what = f"{plural}/{subresource}" if subresource else plural
        if {(verb, what), (verb, plural)} & user.denied:
            return False
        if user.is_service_account:
            return self._is_bound(user.name, namespace)
        return user.namespaces is None or namespace in user.namespaces

    def _account_exists(self, name: str) -> bool:
        *_, namespace, account = name.split(":")
        return self._store.find("serviceaccounts", account, namespace) is not None

    def _is_bound(self, name: str, namespace: str) -> bool:
        if _names(self._store.items("clusterrolebindings"), name):
            return True
        return bool(namespace) and _names(self._store.items("rolebindings", namespace), name)


def _names(bindings: Iterable[Json], user: str) -> bool:
    subjects = (subject for binding in bindings for subject in binding.get("subjects") or ())
    return any(
        user == account_name(subject.get("namespace", ""), subject["name"])
        if subject["kind"] == "ServiceAccount"
        else user == subject["name"]
        for subject in subjects
    )


# -- HTTP --------------------------------------------------------------------------------------------------------------
# Authenticates, authorizes, and answers in the API's own form.


class HttpServer(ThreadingHTTPServer):
    """A port, and a thread for each connection to it."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: KubeApi) -> None:
        self.api = api
        self.connections: set[socket.socket] = set()
        self.is_closing = False
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors of clients that disconnect midway."""

    def sever(self) -> None:
        """Breaks all connections."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


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
        if (special := self._api.special(parts.path, body, user)) is not None:
            self._send_json(*special)
            return
        route = self._api.store.resources.route(parts.path)
        if route is None:
            self._send(404, b"404 page not found", {"Content-Type": "text/plain"})
            return
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        request = self._request(route, query, user)
        if fault := self._api.fault(request):
            self._send(*fault)
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

    def _answer(self, route: Route, request: Request, body: bytes) -> None:
        code = 201 if self.command == "POST" else 200
        try:
            content = self._api.answer(route, request, body, self.headers.get("Content-Type", ""))
        except RefusedError as refused:
            code, content = refused.code, refused.status
        self._send_json(code, content)

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
        for line in watching.lines(lambda: self._http.is_closing or self._api.ends(request)):
            self._chunk(line)
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: Json) -> None:
        data = json.dumps(event).encode() + b"\n"
        with suppress(OSError):
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def _send_json(self, code: int, content: Json) -> None:
        self._send(code, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        with suppress(OSError):
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


# -- the server --------------------------------------------------------------------------------------------------------


TOKEN: Final = "not-a-secret"  # noqa: S105 - of a server that lives for a test
Fault = tuple[int, bytes, dict[str, str]]  # status, body and headers
Admit = Callable[[Resource, str, Json], None]  # raises RefusedError for a new object, as a webhook would
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class KubeApi:
    """A Kubernetes API server. It keeps its port and its objects over stop and start.

    As the real one does, it has resource versions, paged lists, watches with bookmarks and 410 Gone, selectors,
    optimistic changes, the status subresource, generations, finalizers, three kinds of patches, namespaces that must
    exist, tokens of service accounts, pods that wait for a kubelet to end them, the taint on new nodes, and ``Status``
    objects for refusals. It knows the usual kinds and Liqo's; :attr:`Store.resources` takes more, and so does
    creating a CustomResourceDefinition. It checks names and labels, but no schema; no controller runs beside it, so
    there is no garbage collection.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, authority: str = "") -> None:
        """``tls`` makes it an HTTPS server, known by the certificates of ``authority``, as PEM."""
        self.store = Store()
        self.users = Users(User("somebody", TOKEN), self.store)
        self.authority = authority
        self._tls = tls
        self.admission: list[Admit] = []
        self.page_limit = 1000  # the most objects in a page, whatever is asked for
        self.sends_bookmarks = True
        self._port = 0
        self.http: HttpServer | None = None
        for name in _NAMESPACES:
            self.store.create("namespaces", "", {"metadata": {"name": name}})
        self.store.compact()

    @classmethod
    def secure(cls, directory: Path) -> Self:
        """One with TLS and an authority of its own. ``directory`` is for the key and must exist."""
        authority = new_authority(Validity.days(2))
        pair = server_pair(authority, [ip_address("127.0.0.1")], Validity.days(1))
        path = directory / "kubeapi.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key_pem + pair.certificate_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return cls(context, authority=authority.certificate_pem.decode())

    def start(self) -> None:
        """Opens the port."""
        self.http = HttpServer(("127.0.0.1", self._port), self)
        if self._tls is not None:
            self.http.socket = self._tls.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self._port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        """It is known from the first start on."""
        return self._port

    @property
    def address(self) -> str:
        """As a URL."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Stops the server, and breaks all connections."""
        server, self.http = self.http, None
        if server is not None:
            server.is_closing = True
            server.shutdown()
            server.server_close()
            server.sever()

    # Tests override these four.

    def special(self, path: str, body: bytes, user: User | None) -> tuple[int, Json] | None:
        """Answers calls that are not about objects; None for those that are."""
        del body, user
        return (200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"}) if path == "/version" else None

    def fault(self, request: Request) -> Fault | None:
        """A status, a body and headers to send instead of the right answer."""
        del request
        return None

    def answer(self, route: Route, request: Request, body: bytes, media_type: str) -> Json:
        """The right answer; raises RefusedError."""
        return answer(self, route, request, body, media_type)

    def ends(self, request: Request) -> bool:
        """Whether a watch is to end early."""
        del request
        return False

    def kubeconfig_text(self, user: User | None = None) -> str:
        """The kubeconfig of a user, or of the first one."""
        who = user or self.users.first
        cluster: Json = {"server": self.address}
        if self.authority:
            cluster["certificate-authority-data"] = base64.b64encode(self.authority.encode()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": who.name, "user": {"token": who.token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": who.name}}],
            "current-context": "fake",
        }
        return json.dumps(config)  # JSON is YAML

    def kubeconfig(self, directory: Path, *, user: User | None = None, name: str = "kubeconfig") -> Path:
        """Writes a kubeconfig file for clients."""
        path = directory / name
        path.write_text(self.kubeconfig_text(user))
        return path
