"""The server itself: a port, its users, its objects, and how to make it misbehave."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cloudgraft.certs.issue import Validity, new_authority, server_pair
from cloudgraft.demo.fake_kubernetes.calls import Fault, Request
from cloudgraft.demo.fake_kubernetes.handler import HttpServer
from cloudgraft.demo.fake_kubernetes.refusals import Json
from cloudgraft.demo.fake_kubernetes.resources import Resource
from cloudgraft.demo.fake_kubernetes.store import Store
from cloudgraft.demo.fake_kubernetes.users import User, Users

__all__ = ["TOKEN", "Admit", "KubeApi"]

TOKEN: Final = "not-a-secret"  # noqa: S105 - of a server that lives for a test
Admit = Callable[[Resource, str, Json], None]  # raises RefusedError for a new object, as a webhook would
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class KubeApi:
    """A Kubernetes API server. It keeps its port and its objects over stop and start.

    As the real one does, it has resource versions, paged lists, watches with bookmarks and 410 Gone, selectors,
    optimistic changes, the status subresource, generations, finalizers, three kinds of patches, namespaces that must
    exist, tokens of service accounts, pods that wait for a kubelet to end them, the taint on new nodes, and ``Status``
    objects for refusals. It knows the usual kinds and Liqo's; :attr:`Store.resources` takes more, and so does
    creating a CustomResourceDefinition. It checks names and labels, but no schema; nothing runs beside it, so nobody
    collects garbage.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, authority: str = "") -> None:
        """``tls`` makes it an HTTPS server, known by the certificates of ``authority``, as PEM."""
        self.store = Store()
        self.users = Users(User("somebody", TOKEN), self.store)
        self.authority = authority
        self._tls = tls
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.admission: list[Admit] = []
        self.page_limit = 1000  # the most objects in a page, whatever is asked for
        self.sends_bookmarks = True
        self.most_at_once = 0  # calls, without watches
        self._port = 0
        self._server: HttpServer | None = None
        for name in _NAMESPACES:
            self.store.create("namespaces", "", {"metadata": {"name": name}})
        self.store.compact()

    @classmethod
    def secure(cls, directory: Path) -> KubeApi:
        """One with TLS and an authority of its own. ``directory`` is for the key and must exist."""
        authority = new_authority(Validity.days(2))
        pair = server_pair(authority, [ip_address("127.0.0.1")], Validity.days(1))
        path = directory / "kubeapi.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key_pem + pair.certificate_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return cls(context, authority=authority.certificate_pem.decode())

    @property
    def token(self) -> str:
        """That the first user is known by at present."""
        return self.users.first.token

    @token.setter
    def token(self, token: str) -> None:
        self.users.first.token = token

    @property
    def denied(self) -> set[tuple[str, str]]:
        """What the first user may not do: verbs, each with a plural."""
        return self.users.first.denied

    @denied.setter
    def denied(self, denied: set[tuple[str, str]]) -> None:
        self.users.first.denied = denied

    def register(self, *resources: Resource) -> None:
        """Serves more kinds."""
        self.store.resources.add(*resources)

    def start(self) -> None:
        """Opens the port."""
        self._server = HttpServer(("127.0.0.1", self._port), self)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        """It is known from the first start on."""
        return self._port

    @property
    def address(self) -> str:
        """As a URL."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Takes the server away, with all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.is_closing = True
            server.shutdown()
            server.server_close()
            _sever(server)

    def sever(self) -> None:
        """Breaks all connections, and goes on."""
        _sever(self._running())

    def end_watches(self) -> None:
        """Ends all watches in an orderly way, as the real server does from time to time."""
        server = self._running()
        with self.store.changed:
            server.watch_generation += 1
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
        """The watches of a kind that were opened."""
        return [request for request in self.requests if request.is_watch and request.plural == plural]

    def lists(self, plural: str) -> list[Request]:
        """The lists of a kind that were read; pages but the first do not count."""
        reads = [request for request in self.requests if request.method == "GET" and request.plural == plural]
        return [request for request in reads if not request.is_watch and "continue" not in request.query]

    def kubeconfig_text(self, user: User | None = None) -> str:
        """With what a client gets in as a user, or as the first one."""
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
        """Writes a file with which clients find this server."""
        path = directory / name
        path.write_text(self.kubeconfig_text(user))
        return path

    def _running(self) -> HttpServer:
        if self._server is None:
            raise RuntimeError("the server is not started")
        return self._server


def _sever(server: HttpServer) -> None:
    for connection in list(server.connections):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
