"""The driver of the simulated cloud over HTTP: servers that hang, answer nonsense or are gone."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest

from cloudgraft.sdk import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    Machine,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.link import _is_stale
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conditions import until
from tests.simcloud.driver_setting import Setting
from tests.simcloud.sim_world import a_spec


@asynccontextmanager
async def driver_of(url: str, *, patience: float = 20.0) -> AsyncIterator[SimulatedDriver]:
    driver = SimulatedDriver(SimulatedOptions(url=url, timeout=timedelta(seconds=patience)))
    await driver.start()
    try:
        yield driver
    finally:
        await driver.close()


async def test_a_cloud_that_is_not_there_is_unavailable_and_nothing_was_done() -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        async with driver_of(f"http://127.0.0.1:{nobody_listens.getsockname()[1]}") as driver:
            for call in (driver.create(a_spec()), driver.list(), driver.delete(Machine(name="m", machine_id="x"))):
                with pytest.raises(UnavailableError, match="cloudgraft simcloud"):
                    await call


async def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_open() -> None:
    world = Setting("in process")
    world.chaos(hang=True)
    async with driver_of(world.server.url, patience=0.2) as driver:
        with pytest.raises(DeadlineError, match=r"within 0\.2 s"):
            await driver.create(a_spec())
        world.chaos()
        await until(lambda: len(world.cloud.machines()) == 1)
        assert len(await driver.list()) == 1
    world.server.stop()


async def test_a_cloud_that_was_restarted_in_between_is_reached_again() -> None:
    world = Setting("in process")
    async with driver_of(world.server.url) as driver:
        await driver.create(a_spec("m-1"))
        address = world.server.address
        world.server.stop()
        with pytest.raises(UnavailableError):
            await driver.list()
        world.server = HttpServer(world.cloud, address)
        world.server.start()
        await driver.create(a_spec("m-2"))  # by a new connection: the old one is not even tried
        assert len(await driver.list()) == 2
    world.server.stop()


async def test_closing_the_driver_ends_a_call_that_hangs() -> None:
    world = Setting("in process")
    world.chaos(hang=True)
    async with driver_of(world.server.url, patience=600) as driver:
        call = asyncio.create_task(driver.create(a_spec()))
        await until(lambda: world.cloud.calls().get("create") == 1)
    with pytest.raises(DeadlineError):
        await call
    world.server.stop()
    world.chaos()


def _read_request(connection: socket.socket) -> None:
    """Reads all of it: what is left unread when the connection is closed would make the client lose the answer."""
    with connection.makefile("rb") as stream:
        length = 0
        while (line := stream.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        stream.read(length)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives every caller the same answer, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    _read_request(connection)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "on_create", "on_list"),
    [
        (b"", DeadlineError, UnavailableError),
        (b"SSH-2.0-OpenSSH\r\n", DeadlineError, UnavailableError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", DeadlineError, UnavailableError),
        (http("200 OK", b"<html>hello</html>"), InternalError, InternalError),
        (http("200 OK", b"{}"), InternalError, InternalError),
        (http("200 OK", b"[" * 100_000), InternalError, InternalError),
        (http("200 OK", b'{"machines": 5, "count": 1, "more": false}'), InternalError, InternalError),
        (http("200 OK", b'{"machines": [{}], "count": 1, "more": false}'), InternalError, InternalError),
        (http("200 OK", b'{"machines": [], "count": 1, "more": false}'), InternalError, UnavailableError),
        (http("200 OK", b'{"machines": [], "count": 0, "more": true}'), InternalError, UnavailableError),
        (http("404 Not Found", b"nginx"), PreconditionError, PreconditionError),
        (http("401 Unauthorized", b""), PreconditionError, PreconditionError),
        (http("429 Too Many Requests", b"slow"), RateLimitedError, RateLimitedError),
        (http("502 Bad Gateway", b"nginx"), DeadlineError, UnavailableError),
        (http("503 Service Unavailable", b"nginx"), DeadlineError, UnavailableError),
        (
            http("503 Service Unavailable", b'{"error": {"code": "unavailable", "message": "nothing was done"}}'),
            UnavailableError,
            UnavailableError,
        ),
        (http("504 Gateway Timeout", b"nginx"), DeadlineError, UnavailableError),
        (
            http("429 X", b'{"error": {"code": "rate_limited", "message": "m", "retryAfter": "soon"}}'),
            RateLimitedError,
            RateLimitedError,
        ),
    ],
)
async def test_whatever_answers_at_that_address_the_error_is_an_honest_one(
    answer: bytes, on_create: type[CloudgraftError], on_list: type[CloudgraftError]
) -> None:
    with answering(answer) as url:
        async with driver_of(url) as driver:
            with pytest.raises(CloudgraftError) as created:
                await driver.create(a_spec())
            with pytest.raises(CloudgraftError) as listed:
                await driver.list()
            with pytest.raises(CloudgraftError):
                await driver.shapes()
    assert (type(created.value), type(listed.value)) == (on_create, on_list)


async def test_a_path_that_is_not_found_is_not_taken_for_a_machine_that_is_gone() -> None:
    """A wrong address must not make every machine look deleted."""
    with answering(http("404 Not Found", b'{"error": {"code": "no_such_path", "message": "?"}}')) as url:
        async with driver_of(url) as driver:
            with pytest.raises(PreconditionError):
                await driver.delete(Machine(name="m-1", machine_id="x"))


def test_a_connection_that_another_thread_closes_counts_as_stale() -> None:
    ours, theirs = socket.socketpair()
    assert not _is_stale(ours)
    ours.close()
    theirs.close()
    assert _is_stale(ours)
    assert _is_stale(None)
