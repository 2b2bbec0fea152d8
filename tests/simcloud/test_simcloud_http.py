"""The simulated cloud over real sockets: its interface, and what it says to nonsense."""

from __future__ import annotations

import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from cloudgraft.sdk import InvalidArgumentError, UnavailableError
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order
from tests.simcloud.sim_process import call, refused
from tests.simcloud.sim_world import START, Clock

SMALL = {"name": "m-1", "shape": "small"}


class Served:
    def __init__(self) -> None:
        self.clock = Clock()
        self.cloud = SimulatedCloud(SimulatedOptions(), clock=self.clock, ident="cafe")
        self.server = HttpServer(self.cloud)
        self.server.start()
        self.url = self.server.url
        host, _, port = self.server.address.rpartition(":")
        self.place = (host, int(port))

    def raw(self, request: bytes) -> bytes:
        """Sends bytes as they are; everything that comes back until the server closes."""
        with socket.create_connection(self.place, timeout=20) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while part := connection.recv(65536):
                found += part
        return found

    def is_well(self) -> bool:
        return bool(call(self.url, "GET", "/healthz") == {"ok": True})


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.server.stop()
    served.cloud.close()


# -- the interface -----------------------------------------------------------------------------------------------------


def test_create_list_get_and_delete(served: Served) -> None:
    order = {
        **SMALL,
        "token": "t",
        "client": "me",
        "tags": {"a": "b"},
        "zone": "z",
        "labels": {"l": "1"},
        "annotations": {"n": "2"},
        "taints": [{"key": "k"}],
    }
    made = call(served.url, "POST", "/machines", order)
    assert made == {
        "machineId": "cafe-000001",
        "providerId": "simulated://cafe-000001",
        "name": "m-1",
        "state": "pending",
        "reason": "",
        "tags": {"a": "b"},
        "createdAt": START,
        "runningSince": None,
        "shape": "small",
        "zone": "z",
        "labels": {"l": "1"},
        "annotations": {"n": "2"},
        "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}],
    }
    assert call(served.url, "POST", "/machines", order) == made
    assert call(served.url, "GET", "/machines") == {"machines": [made], "count": 1, "more": False, "cursor": ""}
    served.clock.pass_(5)
    running = {**made, "state": "running", "runningSince": START + 5}
    assert call(served.url, "GET", "/machines/cafe-000001") == running
    assert call(served.url, "DELETE", "/machines/cafe-000001")["state"] == "deleting"
    served.clock.pass_(2)
    assert refused(served.url, "GET", "/machines/cafe-000001")[0] == 404
    assert refused(served.url, "DELETE", "/machines/cafe-000001")[1]["code"] == "not_found"


def test_pages_lead_from_one_to_the_next(served: Served) -> None:
    for number in range(5):
        call(served.url, "POST", "/machines", {"name": f"m-{number}", "shape": "small"})
    found: list[str] = []
    page: dict[str, Any] = {"cursor": ""}
    for _ in range(3):
        cursor = page["cursor"]
        page = call(served.url, "GET", f"/machines?limit=2&cursor={urllib.parse.quote(cursor)}")
        found += [machine["name"] for machine in page["machines"]]
    assert (found, page["more"]) == (["m-0", "m-1", "m-2", "m-3", "m-4"], False)


def test_shapes_and_prices(served: Served) -> None:
    shapes = {shape["name"]: shape["capacity"] for shape in call(served.url, "GET", "/shapes")["shapes"]}
    assert shapes["gpu"]["nvidia.com/gpu"] == "1"
    assert {"shape": "small", "hourly": "0.02", "currency": "EUR"} in call(served.url, "GET", "/prices")["prices"]


def test_the_ledger_says_who_made_what_and_what_it_cost(served: Served) -> None:
    for client in ("one", "two"):
        call(served.url, "POST", "/machines", {"name": f"of-{client}", "shape": "gpu", "client": client})
    call(served.url, "POST", "/machines", {**SMALL, "tags": {"cloudgraft-cluster-id": "three"}})
    served.clock.pass_(3600)
    ledger = call(served.url, "GET", "/ledger")
    assert [(m["name"], m["client"], m["cost"]) for m in ledger["machines"]] == [
        ("of-one", "one", "1.500000"),
        ("of-two", "two", "1.500000"),
        ("m-1", "three", "0.020000"),
    ]
    assert ledger["calls"] == {"create": 3}
    [only] = call(served.url, "GET", "/ledger?client=two")["machines"]
    assert only == {
        "machineId": "cafe-000002",
        "providerId": "simulated://cafe-000002",
        "name": "of-two",
        "token": "",
        "client": "two",
        "shape": "gpu",
        "tags": {},
        "state": "running",
        "creates": 1,
        "deletes": 0,
        "deletedBy": "",
        "createdAt": START,
        "deleteAskedAt": None,
        "goneAt": None,
        "cost": "1.500000",
        "currency": "EUR",
    }


def test_chaos_is_set_as_a_whole_and_read_back(served: Served) -> None:
    assert call(served.url, "GET", "/chaos") == {}
    chaos = {"create": {"lost": {"next": 1}}, "latency": [0.0, 0.001], "stock": {"gpu": 0}}
    assert call(served.url, "PUT", "/chaos", chaos) == chaos
    assert call(served.url, "GET", "/chaos") == chaos
    assert call(served.url, "PUT", "/chaos", {"quota": 1}) == {"quota": 1}
    assert refused(served.url, "PUT", "/chaos", {"quotta": 1}) == (
        400,
        {"code": "invalid_argument", "message": "chaos: unknown key 'quotta'; did you mean 'quota'?"},
    )
    assert call(served.url, "GET", "/chaos") == {"quota": 1}


def test_an_operator_can_kill_a_machine_make_it_vanish_and_lose_its_tags(served: Served) -> None:
    for number in range(3):
        call(served.url, "POST", "/machines", {"name": f"m-{number}", "shape": "small", "tags": {"a": "b"}})
    for number, action in ((1, "kill"), (2, "vanish"), (3, "lose-tags")):
        assert call(served.url, "POST", f"/machines/cafe-00000{number}:{action}") == {}
    machines = call(served.url, "GET", "/machines")["machines"]
    assert [(m["name"], m["state"], m["tags"]) for m in machines] == [
        ("m-0", "failed", {"a": "b"}),
        ("m-2", "pending", {}),
    ]
    assert refused(served.url, "POST", "/machines/cafe-000001:explode")[0] == 404
    assert refused(served.url, "POST", "/machines/nobody:kill")[0] == 404


@pytest.mark.parametrize(
    ("chaos", "status", "code"),
    [
        ({"quota": 0}, 403, "quota_exceeded"),
        ({"stock": {"small": 0}}, 409, "out_of_stock"),
        ({"create": {"rateLimits": 1}, "retryAfter": 2.5}, 429, "rate_limited"),
        ({"create": {"unavailable": 1}}, 503, "unavailable"),
        ({"create": {"errors": 1}}, 500, "failed"),
        ({"create": {"errorsAfter": 1}}, 500, "failed"),
    ],
)
def test_a_refusal_has_its_status_and_its_code(
    served: Served, chaos: dict[str, object], status: int, code: str
) -> None:
    call(served.url, "PUT", "/chaos", chaos)
    got, error = refused(served.url, "POST", "/machines", SMALL)
    assert (got, error["code"], error.get("retryAfter")) == (status, code, 2.5 if status == 429 else None)


def test_a_lost_answer_is_a_closed_connection_and_the_machine_is_there(served: Served) -> None:
    call(served.url, "PUT", "/chaos", {"create": {"lost": {"next": 1}}})
    body = json.dumps(SMALL).encode()
    head = f"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert served.raw(head + body) == b""
    assert call(served.url, "GET", "/machines")["count"] == 1
    assert call(served.url, "GET", "/ledger")["faults"] == {"create.lost": 1}


def test_an_operator_is_answered_while_the_cloud_hangs_and_the_call_ends_when_it_moves(served: Served) -> None:
    call(served.url, "PUT", "/chaos", {"hang": True})
    answers: list[object] = []
    caller = threading.Thread(target=lambda: answers.append(call(served.url, "POST", "/machines", SMALL)))
    caller.start()
    while not call(served.url, "GET", "/ledger")["calls"]:
        assert caller.is_alive()
    assert call(served.url, "GET", "/ledger")["machines"] == []
    assert served.is_well()
    call(served.url, "PUT", "/chaos", {})
    caller.join(timeout=20)
    assert len(answers) == 1


def test_many_calls_go_over_one_connection(served: Served) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert served.raw(request * 3).count(b"HTTP/1.1 200 OK") == 3


# -- nonsense ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/machines/a/b", 404),
        ("GET", "/machines/%2e%2e%2f%00", 404),
        ("POST", "/machines/cafe-000001", 405),
        ("PUT", "/machines", 405),
        ("PATCH", "/chaos", 405),
        ("OPTIONS", "/machines", 405),
        ("DELETE", "/ledger", 405),
        ("GET", "/machines?limit=0", 400),
        ("GET", "/machines?limit=1001", 400),
        ("GET", "/machines?limit=-1", 400),
        ("GET", "/machines?limit=x", 400),
        ("GET", "/machines?limit=%D9%A3", 400),
        ("GET", "/machines?limt=1", 400),
        ("GET", "/machines?cursor=x", 400),
        ("GET", "/machines?" + "&".join(["limit=1"] * 20), 400),
        ("GET", "/machines?x", 400),
        ("GET", "/shapes?a=b", 400),
        ("GET", "/ledger?clent=x", 400),
    ],
)
def test_a_path_or_parameter_that_is_not_there_is_reported(served: Served, method: str, path: str, status: int) -> None:
    got, error = refused(served.url, method, path)
    assert got == status
    assert error["message"]
    assert served.is_well()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"5",
        b'"m-1"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": "m-1", "shape": "small", "shape": "large"}',
        b'{"name": "m-1", "shape": "small", "x": NaN}',
        b'{"name": "m-1", "shape": "small", "x": ' + b"1" * 10_000 + b"}",
        b'{"name": "m-1"}',
        b'{"shape": "small"}',
        b'{"name": "m-1", "shape": ""}',
        b'{"name": "m-1", "shape": 5}',
        b'{"name": "m-1", "shape": "huge"}',
        b'{"name": "", "shape": "small"}',
        b'{"name": "M 1", "shape": "small"}',
        b'{"name": "m_1", "shape": "small"}',
        b'{"name": "-m", "shape": "small"}',
        b'{"name": "m-1\\n", "shape": "small"}',
        b'{"name": "m-\\ud800", "shape": "small"}',
        b'{"name": "' + b"m" * 254 + b'", "shape": "small"}',
        b'{"name": "m-1", "shape": "small", "nmae": 1}',
        b'{"name": "m-1", "shape": "small", "token": 7}',
        b'{"name": "m-1", "shape": "small", "tags": {"a": 1}}',
        b'{"name": "m-1", "shape": "small", "tags": ["a"]}',
        b'{"name": "m-1", "shape": "small", "tags": {"a": "' + b"x" * 257 + b'"}}',
        b'{"name": "m-1", "shape": "small", "tags": {' + b",".join(b'"%d": ""' % n for n in range(65)) + b"}}",
        b'{"name": "m-1", "shape": "small", "taints": {"key": "a"}}',
        b'{"name": "m-1", "shape": "small", "taints": [{"value": "a"}]}',
        b'{"name": "m-1", "shape": "small", "taints": [{"key": "a", "effect": "Never"}]}',
    ],
)
def test_an_order_that_makes_no_sense_is_a_clear_400_and_makes_nothing(served: Served, body: bytes) -> None:
    head = f"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = served.raw(head + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == "invalid_argument"
    assert 0 < len(error["message"]) < 500
    assert call(served.url, "GET", "/ledger")["machines"] == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", b"413"),
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", b"400"),
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: 1_0\r\n\r\n", b"400"),
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
        (b"POST /machines HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"411"),
        (b"BREW /coffee HTTP/1.1\r\nHost: x\r\n\r\n", b"501"),
        (b"GET /machines HTTP/9.9\r\nHost: x\r\n\r\n", b"505"),
        (b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
    ids=["large", "huge", "negative", "odd", "twice", "chunked", "verb", "version", "long", "headers", "tls"],
)
def test_a_request_that_is_not_understood_ends_the_connection_and_nothing_else(
    served: Served, request_: bytes, status: bytes
) -> None:
    with socket.create_connection(served.place, timeout=20) as connection:
        connection.sendall(request_)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert served.is_well()


def test_half_a_body_makes_nothing(served: Served) -> None:
    body = json.dumps(SMALL).encode()
    head = f"POST /machines HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + 5}\r\n\r\n".encode()
    assert served.raw(head + body) == b""
    assert call(served.url, "GET", "/ledger")["machines"] == []


# -- the port ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["", "x", "127.0.0.1", ":80", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:²"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidArgumentError, match="127"):
        HttpServer(SimulatedCloud(), listen)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0"])
def test_other_hosts_are_not_served_unless_insecure(listen: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--insecure"):
        HttpServer(SimulatedCloud(), listen)


def test_insecure_it_listens_everywhere() -> None:
    server = HttpServer(SimulatedCloud(), "0.0.0.0:0", insecure=True)
    server.start()
    assert call(f"http://127.0.0.1:{server.address.rpartition(':')[2]}", "GET", "/healthz")
    server.stop()


def test_a_port_that_is_taken_is_reported(served: Served) -> None:
    with pytest.raises(UnavailableError, match="is another program using it"):
        HttpServer(SimulatedCloud(), served.server.address)


def test_a_stop_ends_open_connections(served: Served) -> None:
    with socket.create_connection(served.place, timeout=20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536)
        served.server.stop()
        assert connection.recv(65536) == b""


# -- tags and ids ------------------------------------------------------------------------------------------------------


def test_tags_are_put_on_a_machine_and_taken_off(served: Served) -> None:
    made = call(served.url, "POST", "/machines", {**SMALL, "tags": {"a": "1", "b": "2"}})
    path = f"/machines/{made['machineId']}"
    assert call(served.url, "PATCH", path, {"tags": {"b": None, "c": "3"}})["tags"] == {"a": "1", "c": "3"}
    assert call(served.url, "GET", path)["tags"] == {"a": "1", "c": "3"}
    for body in ({}, {"tags": ["a"]}, {"tags": {"a": 1}}, {"tags": {}, "name": "m-2"}):
        assert refused(served.url, "PATCH", path, body)[0] == 400
    assert refused(served.url, "PATCH", "/machines/cafe-000009", {"tags": {}})[0] == 404


async def test_an_id_can_be_used_again_once_its_machine_is_gone(served: Served) -> None:
    """Under the same name and with the same tags, only the creation time tells that it is another machine."""
    driver = SimulatedDriver(SimulatedOptions(url=served.url))
    await driver.start()
    first = served.cloud.create(Order(name="m-1", settings=MachineSettings(shape="small")))[0]
    (before,) = await driver.list()
    again = {**SMALL, "machineId": first.machine_id}
    assert refused(served.url, "POST", "/machines", again)[0] == 409
    assert refused(served.url, "POST", "/machines", {**SMALL, "machineId": "a/b"})[0] == 400
    served.cloud.vanish(first.machine_id)
    served.clock.pass_(60)
    assert call(served.url, "POST", "/machines", again)["machineId"] == first.machine_id
    served.clock.pass_(2 * 3600)  # by then the first one is forgotten
    (after,) = await driver.list()
    assert (after.machine_id, after.name) == (before.machine_id, before.name)
    assert after.created_at != before.created_at
    assert len(served.cloud.ledger()) == 2
    served.cloud.vanish(first.machine_id)
    assert await driver.list() == []
    await driver.close()
