"""A server that misbehaves as it is told, over real sockets and real TLS."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from cloudgraft.certs.authority import Bundle
from cloudgraft.drivers.http.options import Options


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]  # by their names in lower case
    body: bytes
    client: str  # the common name of the client's certificate, if it showed one


Behaviour = Callable[[socket.socket, Seen], object]


class Rogue:
    """Answers each request by the next behaviour; the last one goes on."""

    def __init__(
        self,
        *behaviours: Behaviour,
        bundle: Bundle | None = None,
        asks_client: bool = False,
        newest_tls: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        shakes_hands: bool = True,
    ) -> None:
        self.behaviours = list(behaviours)
        self.seen: list[Seen] = []
        self.bundle = bundle
        self._context = _context(bundle, asks_client=asks_client, newest=newest_tls) if bundle else None
        self._shakes_hands = shakes_hands
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=32)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the next one
        self._listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def options(self, **changes: Any) -> Options:
        """Those of a driver that trusts it."""
        scheme = "https" if self.bundle else "http"
        trust = {"ca_file": self.bundle.ca_cert} if self.bundle else {}
        return Options(**{"url": f"{scheme}://127.0.0.1:{self.port}", **trust, **changes})

    def _accept(self) -> None:
        threads = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            connection.settimeout(20)
            self._open.add(connection)
            threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(10)

    def _serve(self, raw: socket.socket) -> None:
        connection = raw
        try:
            if not self._shakes_hands:
                wait_for_end(raw)
                return
            if self._context is not None:
                connection = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
                self._open.add(connection)
                assert isinstance(connection, ssl.SSLSocket)
                connection.do_handshake()
            while (request := _read(connection)) is not None:
                with self._lock:
                    self.seen.append(request)
                    behave = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                behave(connection, request)
        except ssl.SSLError:
            # The alert is sent; the end comes from the other side, so that nothing takes the alert back.
            with socket.socket(fileno=connection.detach()) as plain:
                plain.settimeout(20)
                self._open.add(plain)
                wait_for_end(plain)
                self._open.discard(plain)
        except OSError:
            pass
        finally:
            self._open -= {raw, connection}
            connection.close()


def _context(bundle: Bundle, *, asks_client: bool, newest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=bundle.ca_cert)
    context.load_cert_chain(bundle.server_cert, bundle.server_key)
    context.maximum_version = newest
    if asks_client:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _read(connection: socket.socket) -> Seen | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, target, _ = first.split(" ")
    return Seen(method, target, headers, body, _common_name(connection))


def _common_name(connection: socket.socket) -> str:
    certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else ""


def wait_for_end(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            pass


# -- behaviours --------------------------------------------------------------------------------------------------------


def answers(status: int, body: object = None, **headers: str) -> Behaviour:
    """A whole answer; bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    whole = "\r\n".join([*lines, "", ""]).encode() + data
    return lambda connection, _: connection.sendall(whole)


def says(data: bytes) -> Behaviour:
    """These bytes, and then the end."""

    def behave(connection: socket.socket, _: Seen) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return behave


def hangs(connection: socket.socket, _: Seen) -> None:
    """Nothing, until the other side gives up."""
    wait_for_end(connection)


def machine(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "machineID": f"id-{name}", **more}


def makes(connection: socket.socket, request: Seen) -> None:
    """The machine that was asked for."""
    answers(201, {"machine": machine(json.loads(request.body)["name"])})(connection, request)
