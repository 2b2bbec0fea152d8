"""The proxy by which judges break connections: each fault happens once, to the request that it was armed for."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clouds.servers.flaky_proxy import Breakage, FlakyProxy


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the class above
        pass


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def proxy(seen: list[str]) -> Iterator[FlakyProxy]:
    handler = type("Handler", (Recorder,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with FlakyProxy(("127.0.0.1", server.server_port)).run() as running:
            yield running
        server.shutdown()


def get(proxy: FlakyProxy, path: str, seconds: float = 10.0) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_without_a_fault_everything_passes(proxy: FlakyProxy, seen: list[str]) -> None:
    proxy.arm(b"/other", Breakage.LOST_ANSWER)
    assert get(proxy, "/a") == b"ok"
    assert seen == ["/a"]


def test_a_lost_answer_is_one_to_a_request_that_was_carried_out(proxy: FlakyProxy, seen: list[str]) -> None:
    happened = proxy.arm(b"/a", Breakage.LOST_ANSWER)
    with pytest.raises(ConnectionError):
        get(proxy, "/a")
    assert happened.done()
    assert seen == ["/a"]
    assert get(proxy, "/a") == b"ok"


def test_a_lost_request_never_arrives(proxy: FlakyProxy, seen: list[str]) -> None:
    proxy.arm(b"/a", Breakage.LOST_REQUEST)
    with pytest.raises(ConnectionError):
        get(proxy, "/a")
    assert seen == []


def test_a_hang_gives_no_answer(proxy: FlakyProxy, seen: list[str]) -> None:
    proxy.arm(b"/a", Breakage.HANG)
    with pytest.raises(TimeoutError):
        get(proxy, "/a", seconds=0.3)
    assert get(proxy, "/b") == b"ok"


def test_one_that_refuses_resets_every_connection(proxy: FlakyProxy, seen: list[str]) -> None:
    proxy.is_refusing = True
    with pytest.raises(ConnectionError):
        get(proxy, "/a")
    proxy.is_refusing = False
    assert get(proxy, "/a") == b"ok"
