"""A driver over gRPC: in a child process, and as a server of its own over TLS."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cloudgraft.client import Address, CloudConfig
from cloudgraft.plugins.author import DriverServer
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.plugins.host.supervisor import PluginState, Supervisor
from cloudgraft.sdk import (
    AlreadyExistsError,
    ConflictError,
    Driver,
    DriverTraits,
    Idempotency,
    InternalError,
    InvalidArgumentError,
    Machine,
    OutOfStockError,
    Ownership,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, error_table
from cloudgraft.sdk.list_budget import ListBudget
from cloudgraft.server.driver_calls import DriverCalls
from cloudgraft.server.listener import Access
from cloudgraft.wire.driver import RPCS, SERVICE
from cloudgraft.wire.pb import driver_pb2 as pb
from tests.conditions import until
from tests.own_port import OWN_PORT
from tests.plugins.plugin_programs import TIMING, driver_spec
from tests.plugins.scripted_driver import SPEC, TRAITS, Scripted


@asynccontextmanager
async def served(driver: Driver) -> AsyncIterator[RemoteDriver]:
    """A driver, and the same driver through a real server on loopback."""
    server = DriverServer(driver, Access(listen="127.0.0.1:0"))
    await server.start()
    remote = RemoteDriver.connect(CloudConfig(address=Address.parse(server.address)))
    await remote.start()
    try:
        yield remote
    finally:
        await remote.close()
        await server.stop(0)


# -- as a child process ------------------------------------------------------------------------------------------------


async def test_a_driver_as_a_child_process_from_create_to_delete(tmp_path: Path) -> None:
    driver = RemoteDriver.plugin(driver_spec(tmp_path, roomFor=2), timing=TIMING)
    await driver.start()
    try:
        assert driver.traits == DriverTraits(ownership=Ownership.TAGS, idempotency=Idempotency.UNIQUE_NAME)
        made = await driver.create(SPEC)
        assert (made.name, made.provider_id, made.tags) == ("m-1", "file://m-1", {"owner": "us"})
        assert made.created_at is not None
        assert await driver.list() == [made]
        with pytest.raises(AlreadyExistsError, match="there is a machine 'm-1' already"):
            await driver.create(SPEC)
        await driver.create(replace(SPEC, name="m-2"))
        with pytest.raises(OutOfStockError, match="no room for more than 2"):
            await driver.create(replace(SPEC, name="m-3"))
        with pytest.raises(InvalidArgumentError, match=r"machine\.shape: is missing"):
            await driver.create(replace(SPEC, settings={}))
        assert [shape.name for shape in await driver.shapes()] == ["small", "large"]
        assert [str(price.hourly) for price in await driver.prices()] == ["0.02", "0.16"]
        await driver.delete(made)
        await driver.delete(made)
        assert [machine.name for machine in await driver.list()] == ["m-2"]
    finally:
        await driver.close()


@pytest.mark.thorough
async def test_a_driver_that_is_killed_is_back_and_describes_itself_again(tmp_path: Path) -> None:
    driver = RemoteDriver.plugin(driver_spec(tmp_path), timing=TIMING)
    await driver.start()
    try:
        await driver.create(SPEC)
        supervisor = driver.link
        assert isinstance(supervisor, Supervisor)
        assert supervisor.status.pid is not None
        os.kill(supervisor.status.pid, signal.SIGKILL)
        await asyncio.wait_for(
            supervisor.wait_for(lambda status: status.restarts == 1 and status.state is PluginState.RUNNING), 30
        )
        assert [machine.name for machine in await driver.list()] == ["m-1"]
    finally:
        await driver.close()
    with pytest.raises(UnavailableError, match="is stopped"):
        await driver.list()


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", error_table(), ids=lambda error: error.slug)
async def test_every_error_arrives_as_itself_with_its_hint(error: type[CloudgraftError]) -> None:
    """Also those that share a gRPC code, such as quota, stock-out and rate limit: the trailer names which."""
    driver = Scripted()
    driver.error = error("so it is: grün", retry_after=2.5)
    async with served(driver) as remote:
        for call in (remote.create(SPEC), remote.list(), remote.delete(Machine(name="m", machine_id="1"))):
            with pytest.raises(error) as caught:
                await call
            assert type(caught.value) is error
            assert caught.value.message.endswith("so it is: grün")
            assert caught.value.retry_after == 2.5


async def test_an_unexpected_exception_has_an_id_and_no_internals(caplog: pytest.LogCaptureFixture) -> None:
    driver = Scripted()
    driver.error = RuntimeError("password=hunter2")
    async with served(driver) as remote:
        with pytest.raises(InternalError, match=r"internal error \(id [0-9a-f]{8}\)") as caught:
            await remote.create(SPEC)
    assert "hunter2" not in caught.value.message
    assert "hunter2" in caplog.text  # the log has the rest


async def test_what_a_driver_does_not_have_is_unsupported() -> None:
    async with served(Scripted()) as remote:
        with pytest.raises(UnsupportedError, match="does not know its cloud's machine types"):
            await remote.shapes()
        with pytest.raises(UnsupportedError, match="does not know its cloud's prices"):
            await remote.prices()


@pytest.mark.parametrize("request_", [b"\xff\xff", b""], ids=["garbage", "empty"])
@pytest.mark.parametrize("rpc", ["Create", "Delete"])
async def test_an_invalid_request_is_refused(rpc: str, request_: bytes) -> None:
    async with served(Scripted()) as remote:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = remote.link.channel().unary_unary(RPCS[rpc].path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request_, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_driver_starts_again_after_it_was_closed() -> None:
    """A start that fails closes the link, and the engine starts the same driver again."""
    async with served(Scripted()) as remote:
        await remote.close()
        with pytest.raises(UnavailableError, match="is closed"):
            await remote.list()
        await remote.start()
        assert await remote.list() == []


# -- what the engine relies on -----------------------------------------------------------------------------------------


async def test_the_whole_spec_arrives() -> None:
    driver = Scripted()
    async with served(driver) as remote:
        assert remote.traits == TRAITS
        made = await remote.create(SPEC)
        assert made == Machine(name="m-1", machine_id="1", tags={"owner": "us"})
        await remote.delete(made)
    assert driver.seen == [SPEC, made]


async def test_a_create_has_as_long_as_the_driver_declares_and_a_list_does_not() -> None:
    driver = Scripted()
    driver.traits = replace(TRAITS, create_timeout=timedelta(minutes=5))
    server = DriverServer(driver, Access(listen="127.0.0.1:0"))
    await server.start()
    config = CloudConfig(address=Address.parse(server.address)).with_timeout(timedelta(milliseconds=300))
    remote = RemoteDriver.connect(config)
    await remote.start()
    driver.go_on.clear()
    create = asyncio.create_task(remote.create(SPEC))
    await driver.entered.wait()
    with pytest.raises(DeadlineError):
        await remote.list()  # it has waited for longer than a call that declares nothing may
    assert not create.done()
    driver.go_on.set()
    assert (await create).name == "m-1"
    await remote.close()
    await server.stop(0)


async def test_a_create_whose_connection_breaks_has_an_unknown_outcome() -> None:
    """Law 3: DeadlineError makes the engine look before it creates again; UnavailableError would not."""
    driver = Scripted()
    driver.go_on.clear()
    server = DriverServer(driver, Access(listen="127.0.0.1:0"))
    await server.start()
    remote = RemoteDriver.connect(CloudConfig(address=Address.parse(server.address)))
    await remote.start()
    create = asyncio.create_task(remote.create(SPEC))
    await driver.entered.wait()
    driver.entered.clear()
    listing = asyncio.create_task(remote.list())
    await driver.entered.wait()
    stopping = asyncio.create_task(server.stop(0))
    with pytest.raises(DeadlineError, match="whether that was done for m-1 is not known"):
        await create
    with pytest.raises(CloudgraftError):
        await listing
    driver.go_on.set()
    await stopping
    # It is carried out: a caller that is gone does not stop it between its steps.
    await until(lambda: SPEC in driver.seen)
    with pytest.raises(DeadlineError):
        await remote.create(SPEC)  # now nobody listens at all; gRPC's code is the same
    with pytest.raises(DeadlineError):  # else the engine would delete again an id that may have been reused
        await remote.delete(Machine(name="m-1", machine_id="1"))
    with pytest.raises(UnavailableError):
        await remote.list()
    await remote.close()


async def test_a_driver_that_says_by_itself_that_it_is_away_is_believed() -> None:
    driver = Scripted()
    driver.error = UnavailableError("the cloud is in maintenance")
    async with served(driver) as remote:
        with pytest.raises(UnavailableError, match="maintenance"):
            await remote.create(SPEC)


async def test_a_driver_that_does_not_answer_in_time_has_an_unknown_outcome() -> None:
    driver = Scripted()
    async with served(driver) as served_remote:
        await served_remote.list()  # it is connected: only the call itself takes time
        driver.seen.clear()
        driver.go_on.clear()
        remote = RemoteDriver(served_remote.link, timeout=timedelta(seconds=1))
        with pytest.raises(DeadlineError):
            await remote.create(SPEC)
        driver.go_on.set()
        await until(lambda: driver.seen == [SPEC], what="the create went on to its end")


async def test_a_long_list_comes_in_pages_of_one_and_the_same_list() -> None:
    driver = Scripted()
    driver.machines = [Machine(name=f"m-{number}", machine_id=str(number)) for number in range(2500)]
    async with served(driver) as remote:
        assert await remote.list() == driver.machines
    assert len(driver.seen) == 1


async def test_unfetched_pages_are_dropped() -> None:
    driver = Scripted()
    driver.machines = [Machine(name=f"m-{number}", machine_id=str(number)) for number in range(3)]
    service = DriverCalls(lambda _: driver, log=logging.getLogger("test"), whose="the driver's", page=1)
    callee = service._find(None)  # type: ignore[arg-type]  # whoever calls, it is the one driver
    first = pb.ListResponse.FromString(await service._list(callee, pb.ListRequest()))
    for _ in range(20):
        await service._list(callee, pb.ListRequest())
    with pytest.raises(ConflictError, match="begin again with its first page"):
        await service._list(callee, pb.ListRequest(page_token=first.next_page_token))


async def test_before_it_has_described_itself_nothing_counts_as_gone(caplog: pytest.LogCaptureFixture) -> None:
    """A driver that is away at the start is no error there; it is asked again before the first call."""
    remote = RemoteDriver.connect(CloudConfig(address=Address.parse("127.0.0.1:1")))
    await remote.start()
    try:
        assert "a driver is not available yet" in caplog.text
        assert not remote.traits.complete_list
        assert remote.traits.idempotency is Idempotency.NONE
        with pytest.raises(UnavailableError):
            await remote.list()
    finally:
        await remote.close()


# -- drivers in other languages, with bugs -----------------------------------------------------------------------------


class Answers:
    """A foreign driver that answers with these messages."""

    def __init__(self, answers: dict[str, list[bytes]]) -> None:
        self.name = "the driver"
        self._answers = {"Describe": [pb.DescribeResponse(ownership="tags", idempotency="none").SerializeToString()]}
        self._answers |= answers
        self._server = grpc.aio.server(options=OWN_PORT)
        self._channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        def handler(rpc: str) -> grpc.RpcMethodHandler[bytes, bytes]:
            async def answer(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                answers = self._answers[rpc]
                return answers.pop(0) if len(answers) > 1 else answers[0]

            return grpc.unary_unary_rpc_method_handler(answer)

        handlers = {rpc: handler(rpc) for rpc in self._answers}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    def channel(self) -> grpc.aio.Channel:
        assert self._channel is not None
        return self._channel

    async def stop(self) -> None:
        await self.channel().close()
        await self._server.stop(None)


@asynccontextmanager
async def foreign(**answers: list[bytes]) -> AsyncIterator[RemoteDriver]:
    remote = RemoteDriver(Answers(answers))
    await remote.start()
    try:
        yield remote
    finally:
        await remote.close()


async def test_a_list_without_an_end_is_refused() -> None:
    async with foreign(List=[pb.ListResponse(next_page_token="again").SerializeToString()]) as remote:
        with pytest.raises(InternalError, match="same page token twice"):
            await remote.list()


@pytest.mark.parametrize(
    ("limits", "bound"), [({"machines": 1000}, "maxListMachines"), ({"size": 5000}, "maxListBytes")]
)
async def test_a_list_that_grows_without_end_is_refused_while_it_is_read(limits: dict[str, Any], bound: str) -> None:
    pages = [
        pb.ListResponse(
            machines=[pb.Machine(name="m", machine_id=f"{page}-{one}") for one in range(100)], next_page_token=str(page)
        ).SerializeToString()
        for page in range(100)
    ]
    async with foreign(List=pages) as remote:
        with ListBudget(**limits).applied(), pytest.raises(InternalError, match=bound):
            await remote.list()


async def test_another_machine_than_the_one_asked_for_is_refused_and_a_name_left_out_is_filled_in() -> None:
    other = pb.CreateResponse(machine=pb.Machine(name="m-2", machine_id="2")).SerializeToString()
    bare = pb.CreateResponse(machine=pb.Machine(machine_id="2")).SerializeToString()
    async with foreign(Create=[other, bare]) as remote:
        with pytest.raises(InternalError, match="was asked for 'm-1' and answered with 'm-2'"):
            await remote.create(SPEC)
        assert (await remote.create(SPEC)).name == "m-1"


async def test_undecodable_bytes_are_refused() -> None:
    async with foreign(List=[b"\xff\xff\xff"]) as remote:
        with pytest.raises(InternalError, match="answered List with undecodable bytes"):
            await remote.list()


async def test_a_server_that_is_no_driver_is_an_error_at_the_start() -> None:
    remote = RemoteDriver(Answers({"Describe": [b""]}))
    with pytest.raises(InternalError, match="ownership"):
        await remote.start()
