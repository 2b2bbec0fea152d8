"""Serves ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for Kubernetes, on a second port.

Plain HTTP, read only, in its own threads: it answers even when the event loop is stuck, and can report that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.net.http_threads import LimitedHandler, LimitedHttpServer
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError

log = logging.getLogger("cloudgraft.server")

_BEAT = 1.0
_CONNECTIONS: Final = 64
_STUCK = 15.0  # seconds without a heartbeat; the autoscaler's own calls have failed three times by then


class OpsServer:
    """Serves metrics and health of one process."""

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry,
        ready: Callable[[], str],
        listeners: ListenerMetrics | None = None,
    ) -> None:
        """``ready`` returns why not to call here; empty when calls are welcome."""
        listeners = listeners or ListenerMetrics(CollectorRegistry())
        self._registry = registry
        self._ready = ready
        self._beat = time.monotonic()
        self._beating: asyncio.Task[None] | None = None
        host, _, port = listen.rpartition(":")
        if not (port.isdigit() and int(port) <= 65535):
            raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as 127.0.0.1:8087")
        try:
            self._http = LimitedHttpServer(
                (host.strip("[]"), int(port)),
                _handler(self),
                connections=_CONNECTIONS,
                refuse=listeners.refusals("ops"),
            )
        except OSError as error:
            raise UnavailableError(f"cannot listen on {listen} for metrics and health: {error.strerror}") from error
        connections = self._http.connections
        listeners.watch("ops", lambda: len(connections), connections.limit)

    @property
    def address(self) -> str:
        """The address it listens on, with the real port."""
        return self._http.listens_on

    async def start(self) -> None:
        """Begins to answer."""
        self._beating = asyncio.create_task(self._keep_beating())
        threading.Thread(target=self._http.serve_forever, name="ops", daemon=True).start()

    async def stop(self) -> None:
        """Closes the port."""
        if self._beating is not None:
            self._beating.cancel()
        await asyncio.to_thread(self._http.shutdown)
        self._http.server_close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers for as long as the block lasts."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def _keep_beating(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(_BEAT)

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body for a path."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/healthz":
            silent = time.monotonic() - self._beat
            return _health(f"the event loop has not moved for {silent:.0f} s" if silent > _STUCK else "")
        if path == "/readyz":
            return _health(self._ready())
        return HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /healthz or /readyz\n"


def _health(trouble: str) -> tuple[HTTPStatus, str, bytes]:
    body = json.dumps({"ok": not trouble, "reason": trouble}).encode() + b"\n"
    return HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, "application/json", body


def _handler(ops: OpsServer) -> type[LimitedHandler]:
    class Handler(LimitedHandler):
        timeout = 10  # a silent client must not hold a thread for ever
        server_version = "cloudgraft"

        def do_GET(self) -> None:  # noqa: N802 - the base class wants this name
            try:
                status, content_type, body = ops.answer(self.path.partition("?")[0])
            except Exception:
                log.exception("no answer for a probe")
                status, content_type, body = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"see the log\n"
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the base class wants this name too

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            log.debug("http", extra={"peer": self.client_address[0], "request": format % args})

    return Handler
