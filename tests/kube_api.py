"""The demo's small Kubernetes API server, with what tests need beside: faults, broken connections, a list of calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cloudgraft.demo.fake_kubernetes import TOKEN, Json, RefusedError, Request, Resource, Resources, User
from cloudgraft.demo.fake_kubernetes import KubeApi as DemoKubeApi
from cloudgraft.demo.fake_kubernetes.resources import Route
from cloudgraft.demo.fake_kubernetes.server import Fault as Answer
from cloudgraft.demo.fake_kubernetes.server import HttpServer

__all__ = ["TOKEN", "Fault", "Json", "KubeApi", "RefusedError", "Request", "Resource", "Resources", "User"]


@dataclass
class Fault:
    """A fault for the next calls that match."""

    matches: Callable[[Request], bool]
    code: int
    body: bytes
    headers: dict[str, str]
    times: int


class KubeApi(DemoKubeApi):
    """A Kubernetes API server that misbehaves when a test wants it, and remembers the calls."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.most_at_once = 0  # calls, without watches
        self._calls = 0  # that are being answered
        self._watches_end_at = 0.0
        super().__init__(*args, **more)

    # -- what happened -------------------------------------------------------------------------------------------------

    def watches(self, plural: str) -> list[Request]:
        """The watches of a kind that were opened."""
        return [request for request in self.requests if request.is_watch and request.plural == plural]

    def lists(self, plural: str) -> list[Request]:
        """The lists of a kind that were read; pages but the first do not count."""
        reads = [request for request in self.requests if request.method == "GET" and request.plural == plural]
        return [request for request in reads if not request.is_watch and "continue" not in request.query]

    # -- what shall happen ---------------------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        """The current token of the first user."""
        return self.users.first.token

    @token.setter
    def token(self, token: str) -> None:
        self.users.first.token = token

    @property
    def denied(self) -> set[tuple[str, str]]:
        """The actions denied to the first user: verbs, each with a plural."""
        return self.users.first.denied

    @denied.setter
    def denied(self, denied: set[tuple[str, str]]) -> None:
        self.users.first.denied = denied

    def register(self, *resources: Resource) -> None:
        """Serves more kinds."""
        self.store.resources.add(*resources)

    def sever(self) -> None:
        """Breaks all connections, and keeps serving."""
        self._running().sever()

    def end_watches(self) -> None:
        """Ends all watches gracefully, as the real server does from time to time."""
        self._running()
        with self.store.changed:
            self._watches_end_at = time.monotonic()
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
        """Answers the next matching calls with this fault."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "text/plain" if isinstance(body, bytes) else "application/json"}
        self.faults.append(Fault(matches, code, data, kind | (headers or {}), times))

    def _running(self) -> HttpServer:
        assert self.http is not None, "the server is not started"
        return self.http

    # -- in the server's threads ---------------------------------------------------------------------------------------

    def special(self, path: str, body: bytes, user: User | None) -> tuple[int, Json] | None:
        if path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            return super().special(path, body, user)
        if user is None:
            return 401, RefusedError(401, "Unauthorized", "Unauthorized").status
        asked = json.loads(body)["spec"]["resourceAttributes"]
        more = {"subresource": asked.get("subresource", ""), "namespace": asked.get("namespace", "")}
        allowed = self.users.may(user, asked["verb"], asked["resource"], **more)
        return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}

    def fault(self, request: Request) -> Answer | None:
        self.requests.append(request)
        for planned in self.faults:
            if planned.times > 0 and planned.matches(request):
                planned.times -= 1
                return planned.code, planned.body, planned.headers
        return None

    def answer(self, route: Route, request: Request, body: bytes, media_type: str) -> Json:
        self._count(1)
        try:
            return super().answer(route, request, body, media_type)
        finally:
            self._count(-1)  # before the answer, after which the next call may come

    def ends(self, request: Request) -> bool:
        return request.at <= self._watches_end_at

    def _count(self, difference: int) -> None:
        with self.store.changed:
            self._calls += difference
            self.most_at_once = max(self.most_at_once, self._calls)
