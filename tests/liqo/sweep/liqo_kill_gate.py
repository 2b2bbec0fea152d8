"""Sees every step of a peering, wherever it is taken, and kills somebody at the one that was chosen."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kube_api import Fault, KubeApi, Request

GO, DROP = b"go\n", b"drop\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Kill at this step. With ``loses`` the request of that step is never carried out; else its answer is lost."""

    step: str
    loses: bool
    kill: Callable[[], None]


class Gate:
    """What it is asked comes from threads of API servers, and from processes through a socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.steps: list[str] = []
        self.fallen = threading.Event()
        self._order: Order | None = None
        self._lock = threading.Lock()
        socketserver.ThreadingUnixStreamServer.daemon_threads = True
        self._server = socketserver.ThreadingUnixStreamServer(str(socket), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def arm(self, order: Order | None) -> None:
        """From now on, once."""
        with self._lock:
            self._order = order
            self.steps = []
            self.fallen.clear()

    def before(self, step: str) -> bool:
        """A request has come, and nothing is done yet. Says whether it may be."""
        with self._lock:
            self.steps.append(step)
            order = self._order
            if order is None or order.step != step or not order.loses:
                return True
            self._fall(order)
        return False

    def after(self, step: str) -> None:
        """It is done, and not answered yet."""
        with self._lock:
            order = self._order
            if order is not None and order.step == step and not order.loses:
                self._fall(order)

    def _fall(self, order: Order) -> None:
        self._order = None
        order.kill()
        self.fallen.set()

    def watch(self, api: KubeApi, name: str) -> None:
        """Has an API server ask before every change that the node manager makes there.

        Whoever dies before it is carried out, after it was sent, is not there for its answer.
        """

        def is_dropped(request: Request) -> bool:
            if request.method == "GET" or request.user != api.users.first.name:
                return False
            step = f"{name} {request.verb} {request.plural}"
            if not self.before(step):
                return True
            self.after(step)
            return False

        api.faults.append(Fault(is_dropped, 503, b"", {"Content-Type": "text/plain"}, times=1_000_000))

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        gate = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                when, _, step = self.rfile.readline().decode().strip().partition(" ")
                answer = GO
                if when == "before":
                    answer = GO if gate.before(step) else DROP
                else:
                    gate.after(step)
                try:
                    self.wfile.write(answer)
                except OSError:
                    return  # whoever asked is dead now

        return Handler
