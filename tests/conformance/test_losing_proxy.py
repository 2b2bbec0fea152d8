"""The proxy that loses answers: the request is carried out, one answer gets lost, all others come through."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble, judge_driver
from cloudgraft.conformance.driver.proxy import LosingProxy
from cloudgraft.conformance.report import Status
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InvalidArgumentError, UnavailableError


class SmallCloud(BaseHTTPRequestHandler):
    """PUT, GET and DELETE of /machines/NAME."""

    protocol_version = "HTTP/1.1"
    machines: dict[str, Any]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.machines[self.path.rpartition("/")[2]] = json.loads(body)
        self.answer(201, {"path": self.path, "header": self.headers.get("X-Mine")})

    def do_GET(self) -> None:
        self.answer(200, self.machines)

    def do_DELETE(self) -> None:
        is_there = self.machines.pop(self.path.rpartition("/")[2], None) is not None
        self.answer(200 if is_there else 404, {})

    def answer(self, status: int, data: object) -> None:
        content = json.dumps(data).encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        pass


@pytest.fixture
def cloud() -> Iterator[tuple[str, dict[str, Any]]]:
    machines: dict[str, Any] = {}
    handler = type("Handler", (SmallCloud,), {"machines": machines})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", machines
        server.shutdown()


def ask(url: str, method: str, path: str, body: str | None = None, *, chunked: bool = False) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    with contextlib.closing(connection):
        sent: Any = iter([body.encode()]) if chunked and body is not None else body  # an iterator is sent in chunks
        connection.request(method, parts.path + path, body=sent, headers={"X-Mine": "kept"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_one_answer_becomes_a_503_although_the_request_was_carried_out(cloud: tuple[str, dict[str, Any]]) -> None:
    url, machines = cloud
    with LosingProxy(url, Trouble.ERROR_AFTER) as proxy:
        assert ask(proxy.url, "GET", "/machines")[0] == 200  # reads are left alone
        assert ask(proxy.url, "DELETE", "/machines/none")[0] == 404  # and so are refusals
        assert ask(proxy.url, "PUT", "/machines/a", "{}")[0] == 503
        status, body = ask(proxy.url, "PUT", "/machines/b", '{"x": 1}', chunked=True)
    assert (status, json.loads(body)) == (201, {"path": "/v1/machines/b", "header": "kept"})
    assert machines == {"a": {}, "b": {"x": 1}}
    assert proxy.lost == 1


def test_one_connection_ends_without_an_answer(cloud: tuple[str, dict[str, Any]]) -> None:
    url, machines = cloud
    with LosingProxy(url, Trouble.LOST_ANSWER, skip=1) as proxy:
        assert ask(proxy.url, "PUT", "/machines/a", "{}")[0] == 201
        with pytest.raises(http.client.RemoteDisconnected):
            ask(proxy.url, "PUT", "/machines/b", "{}")
    assert set(machines) == {"a", "b"}


def test_only_answers_of_the_wanted_path_get_lost(cloud: tuple[str, dict[str, Any]]) -> None:
    with LosingProxy(cloud[0], Trouble.ERROR_AFTER, path="/b") as proxy:
        assert [ask(proxy.url, "PUT", f"/machines/{name}", "{}")[0] for name in "ab"] == [201, 503]


@pytest.mark.parametrize("address", ["https://cloud.example", "cloud.example", "unix:/socket"])
def test_an_address_that_it_cannot_stand_before_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="begins with http://"):
        LosingProxy(address, Trouble.LOST_ANSWER)


class WebDriver(BlockingDriver):
    """A driver for the small cloud; ``of_5xx`` is what it makes of a 5xx, and ``of_none`` of a closed connection."""

    traits = DriverTraits(idempotency=Idempotency.TOKEN)
    of_5xx: type[CloudgraftError] = DeadlineError
    of_none: type[CloudgraftError] = DeadlineError

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, spec: MachineSpec) -> Machine:
        try:
            status, _ = ask(self.url, "PUT", f"/machines/{spec.name}", json.dumps(dict(spec.tags)))
        except (OSError, http.client.HTTPException) as error:
            raise self.of_none(str(error)) from error
        if status >= 500:
            raise self.of_5xx(f"HTTP {status}")
        return machine(spec.name, spec.tags)

    def delete(self, machine: Machine) -> None:
        ask(self.url, "DELETE", f"/machines/{machine.name}")

    def list(self) -> Sequence[Machine]:
        return [machine(name, tags) for name, tags in json.loads(ask(self.url, "GET", "/machines")[1]).items()]


def machine(name: str, tags: Any) -> Machine:
    return Machine(name=name, machine_id=name, provider_id=f"small://{name}", tags=tags)


class ByTheStatusCode(WebDriver):
    of_5xx = UnavailableError


class ByTheConnection(WebDriver):
    of_none = UnavailableError


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WebDriver, ""),
        (ByTheStatusCode, "the machine was made (5xx after it was done), and create() ended with UnavailableError"),
        (ByTheConnection, "the machine was made (lost answer), and create() ended with UnavailableError"),
    ],
)
async def test_a_driver_that_denies_what_was_done_is_found(
    kind: type[WebDriver], message: str, cloud: tuple[str, dict[str, Any]]
) -> None:
    url, machines = cloud
    with contextlib.ExitStack() as stack:

        def troubled(trouble: Trouble) -> WebDriver | None:
            if trouble not in (Trouble.ERROR_AFTER, Trouble.LOST_ANSWER):
                return None
            return kind(stack.enter_context(LosingProxy(url, trouble)).url)

        settings = DriverSettings(troubled=troubled, at_once=2, interruptions=1, late=timedelta(0))
        report = await judge_driver(lambda: kind(url), settings, only=["D37"])
    assert [result.message.startswith(message) for result in report.failures] == ([True] if message else [])
    assert report.results[-1].status is (Status.FAILED if message else Status.PASSED)
    assert machines == {}
