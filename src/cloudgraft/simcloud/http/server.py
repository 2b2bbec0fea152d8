"""Serves the simulated cloud on a port: HTTP/1.1 with JSON, in threads, on loopback unless configured otherwise."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from http import HTTPStatus
from socketserver import TCPServer
from typing import Final, cast

from cloudgraft.net.http_threads import LimitedHandler, LimitedHttpServer
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.json_forms import CLIENT_HEADER
from cloudgraft.simcloud.http.routes import MethodNotAllowedError, NoSuchPathError, Routes
from cloudgraft.simcloud.outcomes import LostAnswerError

log = logging.getLogger("cloudgraft.simcloud")

_CONNECTIONS: Final = 1000
_LARGEST_BODY: Final = 1 << 20
_PATIENCE: Final = 60.0  # seconds that a client may be silent in the middle of a connection


class HttpServer:
    """Serves one cloud from :meth:`start` to :meth:`stop`."""

    def __init__(self, cloud: SimulatedCloud, listen: str = "127.0.0.1:0", *, insecure: bool = False) -> None:
        """Opens the port, which may be 0; ``insecure`` admits other hosts."""
        host, _, port = listen.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and int(port) <= 65535):
            example = f"127.0.0.1:{listen if listen.isdecimal() else 9400}"
            raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as {example}")
        if not insecure and not is_loopback_host(host):
            raise InvalidArgumentError(
                f"refusing to serve {listen}: a simulated cloud does not authenticate its callers. "
                "Listen on 127.0.0.1, or say --insecure"
            )
        try:
            self._http = _Server((host.strip("[]"), int(port)), Routes(cloud), cloud)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {listen}: {error.strerror or error}; is another program using it?"
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address, with the real port."""
        return self._http.listens_on

    @property
    def url(self) -> str:
        """The ``url`` for a driver."""
        return f"http://{self.address}"

    def start(self) -> None:
        """Begins to answer, in threads of its own."""
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="simcloud", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Closes the port and every connection. Does not wait for calls that hang."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self._http.connections.close_all()


class _Server(LimitedHttpServer):
    log = log

    def __init__(self, address: tuple[str, int], routes: Routes, cloud: SimulatedCloud) -> None:
        self.routes = routes
        self.cloud = cloud
        super().__init__(address, _Handler, connections=_CONNECTIONS, refuse=_note)

    def server_bind(self) -> None:
        """Binds without resolving this host's name, which may take seconds."""
        TCPServer.server_bind(self)


def _note(reason: str) -> None:
    log.warning("closed a connection: %s", reason)


class _Refused(Exception):  # noqa: N818 - not an error of ours
    """A request that is refused unread; the connection ends with it."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(LimitedHandler):
    protocol_version = "HTTP/1.1"
    server_version = "cloudgraft-simcloud"
    timeout = _PATIENCE
    wbufsize = -1  # head and body in one packet: else the client's delayed ACK costs 40 ms per call
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        server = cast("_Server", self.server)
        try:
            body = self._read_body()
            answer = server.routes.answer(self.command, self.path, body, self.headers.get(CLIENT_HEADER, "")[:256])
            self._send(answer.status, answer.body)
        except LostAnswerError:
            time.sleep(server.cloud.chaos.lost_after)
            self.close_connection = True
        except CloudgraftError as error:
            self._send_error(error)
        except NoSuchPathError as error:
            self._send(HTTPStatus.NOT_FOUND, _error("no_such_path", f"nothing here: {error}"))
        except MethodNotAllowedError as error:
            message = f"{self.command} does not work here; try {error}"
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, _error("method_not_allowed", message), {"Allow": str(error)})
        except _Refused as refused:
            self.close_connection = True
            self._send(refused.status, _error("invalid_argument", str(refused)), {"Connection": "close"})
        except OSError:
            raise  # the connection is broken, and the base class ends it
        except Exception:
            log.exception("no answer for a call")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _error("internal", "a bug; the log has the rest"))

    # The base class looks for a method of this name for each verb.
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _serve  # noqa: N815 - its names

    def _read_body(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a body must come with its Content-Length, not in chunks")
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths:
            return b""
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) < 12):
            raise _Refused(HTTPStatus.BAD_REQUEST, "the Content-Length is not a number")
        length = int(lengths[0])
        if length > _LARGEST_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {_LARGEST_BODY} bytes")
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the client left in the middle of its body")
        return body

    def _send_error(self, error: CloudgraftError) -> None:
        headers = {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(math.ceil(error.retry_after))
        slug = "failed" if error.http_status == HTTPStatus.INTERNAL_SERVER_ERROR else error.slug
        self._send(HTTPStatus(error.http_status), _error(slug, error.message, error.retry_after), headers)

    def _send(self, status: HTTPStatus, body: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what the base class refuses, such as an overlong line, with JSON; it would send HTML."""
        self.close_connection = True
        self.request_version = self.protocol_version  # else a request that is not HTTP would get no status
        status = HTTPStatus(code)
        self._send(status, _error("invalid_argument", message or status.phrase), {"Connection": "close"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Writes to the log, not to standard error."""
        log.debug("http", extra={"peer": self.client_address[0], "request": format % args})


def _error(code: str, message: str, retry_after: float | None = None) -> dict[str, object]:
    error: dict[str, object] = {"code": code, "message": message}
    if retry_after is not None:
        error["retryAfter"] = retry_after
    return {"error": error}
