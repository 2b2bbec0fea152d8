"""The second port: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for Kubernetes.

Plain HTTP, read only, in threads of its own: it answers even when the event loop is stuck, and can say so.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError

log = logging.getLogger("cloudgraft.server")

_BEAT = 1.0
_STUCK = 15.0  # seconds without a beat; the autoscaler's own calls have failed three times by then


class OpsServer:
    """Serves metrics and health of one process."""

    def __init__(self, listen: str, registry: CollectorRegistry, ready: Callable[[], str]) -> None:
        """``ready`` gives the reason why not to send calls here, or an empty string."""
        self._registry = registry
        self._ready = ready
        self._beat = time.monotonic()
        self._beating: asyncio.Task[None] | None = None
        host, _, port = listen.rpartition(":")
        if not (port.isdigit() and int(port) <= 65535):
            raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as 127.0.0.1:8087")
        server = _HttpServer6 if ":" in host else _HttpServer
        try:
            self._http = server((host.strip("[]"), int(port)), _handler(self))
        except OSError as error:
            raise UnavailableError(f"cannot listen on {listen} for metrics and health: {error.strerror}") from error

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        host, port = self._http.server_address[:2]
        return f"[{host!s}]:{port}" if self._http.address_family is socket.AF_INET6 else f"{host!s}:{port}"

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
            return _verdict(f"the event loop has not moved for {silent:.0f} s" if silent > _STUCK else "")
        if path == "/readyz":
            return _verdict(self._ready())
        return HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /healthz or /readyz\n"


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is nobody's fault; the base class would print a traceback."""
        log.debug("http client failed", extra={"peer": str(client_address), "error": repr(sys.exception())})


class _HttpServer6(_HttpServer):
    address_family = socket.AF_INET6


def _verdict(trouble: str) -> tuple[HTTPStatus, str, bytes]:
    body = json.dumps({"ok": not trouble, "reason": trouble}).encode() + b"\n"
    return HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, "application/json", body


def _handler(ops: OpsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that says nothing must not hold a thread for ever
        server_version = "cloudgraft"
        sys_version = ""

        def do_GET(self) -> None:  # the base class wants this name
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
