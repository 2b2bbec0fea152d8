"""The engine over the dock with a driver of 2018 as it is: serial, without codes, with "Error" for an id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.dock_wiring import ListOnDriverEvent
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, MachineSpec
from cloudgraft.sdk.errors import ErrorClass, InternalError, OutOfStockError
from cloudgraft.sdk.types import Instance, InstanceState
from cloudgraft.store.records import MachineRecord, Presence, State
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver
from tests.dock.hub.raw_drivers import RawV0
from tests.engine.scripted_cloud import desired_state, group, live

STOCK = "InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"


@dataclass
class Client2018:
    """The client of 2018: it receives, works in line, answers, and only then receives again."""

    driver: RawV0
    at_once: bool = False  # another client, which works on several operations at once
    machines: dict[str, str] = field(default_factory=dict)  # names by id
    error: str = ""  # of creates
    may_create: asyncio.Event = field(default_factory=asyncio.Event)
    creates: list[str] = field(default_factory=list)  # names, one for each message
    deletes: list[str] = field(default_factory=list)
    lists: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                operation = await self.driver.receive()
                if self.at_once:
                    tasks.create_task(self.work(operation))
                else:
                    await self.work(operation)

    async def work(self, operation: v0.MCMside) -> None:
        params, number = operation.operationparams, operation.operationID
        if operation.operationType == "create":
            self.creates.append(params.machineName)
            await self.may_create.wait()
            if self.error:
                await self.driver.created(number, "Error", node="Error", error=self.error)
                return
            machine_id = f"acme:///eu/i-{len(self.machines)}"
            self.machines[machine_id] = params.machineName
            await self.driver.created(number, machine_id, node="ip-1")
        elif operation.operationType == "list":
            self.lists += 1
            await self.driver.listed(number, *self.machines.items())
        else:
            self.deletes.append(params.machineID)
            del self.machines[params.machineID]
            await self.driver.deleted(number)


@asynccontextmanager
async def client(connected: ConnectedDriver, service: str, **changes: Any) -> AsyncIterator[Client2018]:
    async with RawV0(connected.listener.address, path=f"/{service}/Register") as driver:
        await driver.register(KEY)
        await until(lambda: connected.hub.info(KEY) is not None)
        made = Client2018(driver, **changes)
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@asynccontextmanager
async def engine(connected: ConnectedDriver, tmp_path: Path, cloud: Driver, **settings: Any) -> AsyncIterator[Engine]:
    chosen = CloudSettings(name="a", observe_every=timedelta(seconds=0.1), **settings)
    declared = CloudDeclaration(settings=chosen, make=lambda: cloud)
    plan = replace(desired_state({}, group(max_size=20)), clouds={"a": declared})
    async with live(tmp_path, plan) as made:
        connected.hub.listen(ListOnDriverEvent(made, at_most_every=0.01))
        await until(lambda: not made.trouble(), what="the cloud was listed")
        yield made


@pytest.fixture
async def connected() -> AsyncIterator[ConnectedDriver]:
    async with ConnectedDriver() as made:
        yield made


def records(engine: Engine, *states: State) -> list[MachineRecord]:
    return [record for record in engine.fleet.machines.values() if not states or record.state in states]


def has(engine: Engine, count: int, state: State) -> Callable[[], bool]:
    return lambda: len(records(engine, state)) == count


async def shown(engine: Engine) -> list[Instance]:
    return list(await EngineProvider(engine).instances("g"))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("service", ["service.Servicegrpc", "infra.Infragrpc"])
async def test_case_54_an_increase_sends_a_serial_driver_no_more_than_it_takes(
    connected: ConnectedDriver, tmp_path: Path, service: str, elsewhere: bool
) -> None:
    """What waits has not been sent, so no time of it runs out, and a stock-out spares it the call."""
    cloud = connected.remote_cloud() if elsewhere else connected.cloud()
    async with client(connected, service) as peer, engine(connected, tmp_path, cloud) as made:
        await EngineProvider(made).increase_size("g", 12)
        await until(has(made, 1, State.CREATING))
        await until(lambda: len(peer.creates) == 1)
        made.workers["a"].nudge()
        await until(lambda: connected.hub.drivers()[0].queued == 1, what="a list waits, and no create")
        assert (len(records(made, State.REQUESTED)), connected.hub.drivers()[0].in_flight) == (11, 1)
        lists = peer.lists
        peer.may_create.set()
        await until(has(made, 12, State.RUNNING))
        assert peer.lists > lists, "lists have their turn between creates"
        assert len(peer.creates) == len(set(peer.creates)) == len(peer.machines) == 12
        assert not made.trouble()


async def test_case_57_a_create_that_failed_shows_at_once_and_its_machine_is_found(
    connected: ConnectedDriver, tmp_path: Path
) -> None:
    """Law 7 and law 3: the driver reports a lost response as it reports a refusal."""
    cloud = connected.cloud(error_texts={"We currently do not have": "quota_exceeded"})
    async with client(connected, "service.Servicegrpc") as peer, engine(connected, tmp_path, cloud) as made:
        peer.error = STOCK
        peer.may_create.set()
        await EngineProvider(made).increase_size("g", 2)
        await until(has(made, 2, State.FAILED))
        for instance in await shown(made):
            assert instance.state is InstanceState.CREATING
            assert instance.error is not None
            assert (instance.error.error_class, instance.error.code) == (ErrorClass.OUT_OF_RESOURCES, "quota_exceeded")
        assert len(peer.creates) == 1, "the other one was not sent: there is no room for it either"
        (unsettled,) = [record for record in records(made) if record.presence is Presence.UNKNOWN]
        assert unsettled.name == peer.creates[0]
        peer.machines["acme:///eu/i-late"] = unsettled.name
        await until(lambda: peer.deletes == ["acme:///eu/i-late"], what="a failed machine's resources are deleted")
        assert len(peer.creates) == 1
        assert all(instance.error is not None for instance in await shown(made)), "and it is shown until it is deleted"


async def test_case_56_a_create_that_outlasts_its_timeout_is_one_machine(
    connected: ConnectedDriver, tmp_path: Path
) -> None:
    """Complete lists do not show it, so the engine creates it again. The driver is asked once."""
    cloud = connected.cloud(create_timeout=timedelta(seconds=0.05), max_in_flight=4)
    limits = {"create_timeout": timedelta(seconds=0.1), "backoff_initial": timedelta(seconds=0.01)}
    async with (
        client(connected, "service.Servicegrpc", at_once=True) as peer,
        engine(connected, tmp_path, cloud, **limits) as made,
    ):
        await EngineProvider(made).increase_size("g", 1)
        await until(lambda: bool(records(made)) and records(made)[0].attempts >= 2, what="it is created again")
        peer.may_create.set()
        await until(has(made, 1, State.RUNNING))
        assert (len(peer.creates), len(peer.machines), peer.deletes) == (1, 1, [])


async def test_an_error_text_without_a_class_is_logged_once(
    connected: ConnectedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = connected.cloud(error_texts={"Waldi * eaten it": "out_of_stock"})
    await cloud.start()
    async with client(connected, "service.Servicegrpc", error="Hasso was here") as peer:
        peer.may_create.set()
        spec = MachineSpec(name="m-1", group="g")
        for _ in range(2):
            with pytest.raises(InternalError, match="Hasso was here"):
                await cloud.create(spec)
        told = [record for record in caplog.records if "errorTexts" in record.message]
        assert len(told) == 1
        (report,) = connected.hub.drivers()
        assert report.unclassified == "Hasso was here"
        peer.error = "waldi has eaten it"
        with pytest.raises(OutOfStockError, match="eaten") as caught:
            await cloud.create(spec)
        assert caught.value.is_final
        assert len([record for record in caplog.records if "errorTexts" in record.message]) == 1
