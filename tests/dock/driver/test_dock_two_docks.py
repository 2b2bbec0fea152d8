"""Case 35 with two docks: the leader's driver moves to the dock of the next one while a create is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings, Speech
from cloudgraft.sdk.driver import Driver, Idempotency, Machine, MachineSpec, Shape
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Presence
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver
from tests.dock.hub.black_hole import BlackHole
from tests.engine.engine_rig import Rig, creating, fake, group, running
from tests.sampling import sampled


class Held(Driver):
    """The driver's program: its first create waits, before the cloud is asked or with the cloud's answer in hand."""

    def __init__(self, behind: SimulatedDriver, *, asks_first: bool) -> None:
        self.traits = behind.traits
        self.has_begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._behind = behind
        self._asks_first = asks_first

    async def create(self, spec: MachineSpec) -> Machine:
        if self.has_begun.is_set():
            return await self._behind.create(spec)
        if not self._asks_first:
            self.has_begun.set()
            await self.may_go_on.wait()
        machine = await self._behind.create(spec)
        self.has_begun.set()
        await self.may_go_on.wait()
        return machine

    async def delete(self, machine: Machine) -> None:
        await self._behind.delete(machine)

    async def list(self) -> Sequence[Machine]:
        return await self._behind.list()

    async def shapes(self) -> Sequence[Shape]:
        return await self._behind.shapes()


@dataclass
class TwoDocks(Rig):
    """Two processes with a dock each, and a driver that dials an address which leads to whoever leads."""

    asks_first: bool = True
    speech: Speech = Speech.V1
    leader: ConnectedDriver = field(default_factory=ConnectedDriver)
    standby: ConnectedDriver = field(default_factory=ConnectedDriver)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held = Held(SimulatedDriver.of(self.cloud, waits=False), asks_first=self.asks_first)
        self.way = BlackHole(0)

    def driver(self) -> Driver:
        return self.leader.cloud()

    @asynccontextmanager
    async def dialled(self) -> AsyncIterator[DockRunner]:
        settings = RunnerSettings(speech=self.speech, first_wait=0.01, longest_wait=0.05)
        async with self.leader, self.standby, self.way.listening():
            options = RunnerOptions(
                address=self.way.address, kind=KEY.kind, api_version=KEY.api_version, settings=settings
            )
            runner = DockRunner(self.held, options)
            await runner.start()
            await self.lead_to(self.leader)
            async with running(self):
                try:
                    yield runner
                finally:
                    self.held.may_go_on.set()
                    await runner.stop(0)

    async def lead_to(self, connected: ConnectedDriver) -> None:
        self.way.turn_to(int(connected.listener.address.rpartition(":")[2]))
        await until(lambda: connected.hub.info(KEY) is not None, what="the driver is there")

    async def lose_the_leader(self) -> None:
        """A create is in flight, and the driver is cut off; then the leader is gone, with its dock."""
        turn = asyncio.create_task(self.turn())
        await self.held.has_begun.wait()
        self.way.turn_to(0)
        await turn
        assert [record.presence for record in self.records()] == [Presence.UNKNOWN]
        self.leader, self.standby = self.standby, self.leader
        await self.crash()


def two_docks(directory: Path, **changes: object) -> TwoDocks:
    """Machines that the driver of 2018 makes are of the shape that the machine class says."""
    idempotency = changes.pop("idempotency", Idempotency.NONE)
    assert isinstance(idempotency, Idempotency)
    options = SimulatedOptions(boot_time=timedelta(seconds=30), idempotency=idempotency)
    shape = "m1" if changes.get("speech") is Speech.V0 else "small"
    return TwoDocks(directory, groups=(group(machine={"shape": shape}),), options=options, **changes)  # type: ignore[arg-type]  # a test names fields of its own choice


@pytest.mark.parametrize("speech", [Speech.V1, Speech.V0], ids=["v1", "2018"])
@pytest.mark.parametrize("idempotency", sampled(reversed(Idempotency), lambda one: one.value))
@pytest.mark.parametrize("asks_first", [True, False], ids=["made", "not yet made"])
@pytest.mark.parametrize("ends", ["on the way", "at the second", "after it was asked again"])
async def test_case_35_a_create_that_was_in_flight_when_its_driver_moved_to_the_next_dock_is_one_machine(
    tmp_path: Path, speech: Speech, idempotency: Idempotency, asks_first: bool, ends: str
) -> None:
    rig = two_docks(tmp_path, speech=speech, idempotency=idempotency, asks_first=asks_first)
    async with rig.dialled() as runner:
        await rig.settle(2)
        await rig.provider.increase_size("g", 1)
        before = await rig.shown()
        await rig.lose_the_leader()
        if ends == "on the way":
            rig.held.may_go_on.set()
            await until(lambda: not runner.in_flight, what="it has ended, and nobody was there to be told")
        await rig.lead_to(rig.leader)
        if ends == "at the second":
            rig.held.may_go_on.set()
            await until(lambda: not runner.in_flight, what="it has ended")
        await rig.start()
        assert await rig.provider.node_group_for_node(fake(before[0])) is not None, "its placeholder is known"
        await rig.settle(20)  # long enough to ask again for what no list shows
        if not asks_first and ends == "after it was asked again":
            assert rig.cloud.ledger() == []
            assert await rig.provider.target_size("g") == 1
        rig.held.may_go_on.set()
        await until(lambda: not runner.in_flight, what="it has ended")
        await rig.settle(20)
        assert (await rig.states(), len(rig.alive()), len(rig.cloud.ledger())) == (["running"], 1, 1)
        (shown,) = await rig.shown()
        assert shown.error is None
        assert await rig.events("double") == []


@pytest.mark.parametrize("ends", ["on the way", "at the second"])
async def test_case_35_the_next_dock_gets_results_that_ended_during_the_move(tmp_path: Path, ends: str) -> None:
    """It does not wait for a caller there; it has that leader look at the cloud, and is told once."""
    rig = two_docks(tmp_path)
    async with rig.dialled() as runner:
        await rig.settle(2)
        await rig.provider.increase_size("g", 1)
        await rig.lose_the_leader()
        if ends == "at the second":
            await rig.lead_to(rig.leader)
        looks: list[object] = []
        rig.leader.hub.listen(looks.append)
        rig.held.may_go_on.set()
        await until(lambda: not runner.in_flight, what="it has ended")
        if ends == "on the way":
            await rig.lead_to(rig.leader)
        await until(lambda: rig.leader.hub.counts().get("late") == 1, what="the next dock was told")
        assert looks
        await until(lambda: not runner.unacknowledged, what="and has said so")


async def test_case_35_a_create_refused_while_its_driver_moved_stays_refused(tmp_path: Path) -> None:
    """Law 7: by the next leader, and in the words of the cloud."""
    rig = two_docks(tmp_path, asks_first=False)
    async with rig.dialled() as runner:
        await rig.settle(2)
        await rig.provider.increase_size("g", 1)
        await rig.lose_the_leader()
        rig.chaos(stock={"small": 0})
        rig.held.may_go_on.set()
        await until(lambda: not runner.in_flight, what="it was refused, and nobody was there to be told")
        await rig.lead_to(rig.leader)
        await rig.start()
        await rig.settle(20)
        (shown,) = creating(await rig.shown())
        assert shown.error is not None
        assert (shown.error.error_class, shown.error.code) == (ErrorClass.OUT_OF_RESOURCES, "out_of_stock")
        await rig.provider.delete_nodes("g", [fake(shown, "create-error")])
        await rig.settle(5)
        assert (await rig.provider.target_size("g"), rig.cloud.ledger()) == (0, [])
