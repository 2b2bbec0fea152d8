"""A list that misses many machines at once is not believed before it has lasted, or an operator accepts it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import MASS_ABSENCE, EngineSettings
from cloudgraft.engine.operations.accept_loss import accept_loss
from cloudgraft.joining.claims import Stage
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Scope, State
from tests.engine.clusters import MemoryCluster
from tests.engine.engine_rig import Rig, fake, group, running
from tests.engine.scripted_cloud import Cloud, desired_state, stepped
from tests.engine.scripted_cloud import group as a_group

HOLD = MASS_ABSENCE.hold or 0.0


class Hiding(Cloud):
    """Lists without some of its machines."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()

    async def list(self) -> Sequence[Machine]:
        return [machine for machine in await super().list() if machine.machine_id not in self.hidden]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=[group(min_size=5)])) as rig:
        await rig.provider.increase_size("g", 5)
        await rig.settle(5)
        assert await rig.states() == ["running"] * 5
        yield rig


async def test_an_empty_list_costs_no_machine_and_buys_none(rig: Rig) -> None:
    machines = rig.alive()
    rig.chaos(emptyLists=1)
    await rig.settle(20)
    assert (await rig.states(), rig.alive()) == (["running"] * 5, machines)
    (event,) = await rig.events("breaker")
    assert "misses 5 of 5 machines at once" in event.message
    assert "cloudgraft accept-loss --cloud sim" in event.message
    rig.chaos()
    await rig.settle(3)
    assert (await rig.states(), rig.alive()) == (["running"] * 5, machines)
    assert [e.message for e in await rig.events("breaker_closed")] == [
        "cloud sim shows its machines again; absence is believed as usual"
    ]


async def test_what_lasts_is_believed(rig: Rig) -> None:
    rig.chaos(emptyLists=1)
    await rig.settle(int(HOLD // 10) - 1)
    assert len(rig.records(State.RUNNING)) == 5
    rig.chaos(emptyLists=1)
    await rig.settle(6)
    assert len(rig.records(State.GONE)) == 5


async def test_an_outage_in_between_does_not_make_two_lists_last(rig: Rig) -> None:
    rig.chaos(emptyLists=1)
    await rig.turn(10)
    rig.chaos(list={"unavailable": 1})
    await rig.settle(100)
    rig.chaos(emptyLists=1)
    await rig.settle(MASS_ABSENCE.looks - 2)
    assert len(rig.records(State.RUNNING)) == 5


async def test_an_outage_does_not_count_as_time_in_which_it_has_lasted(rig: Rig) -> None:
    """A cloud that comes back up may show nothing at first, as it did when it went down."""
    machines = rig.alive()
    rig.chaos(emptyLists=1)
    await rig.settle(MASS_ABSENCE.looks, 2)
    rig.chaos(list={"unavailable": 1})
    await rig.settle(int(HOLD // 10) + 10)
    rig.chaos(emptyLists=1)
    await rig.settle(MASS_ABSENCE.looks, 2)
    assert (await rig.states(), rig.alive()) == (["running"] * 5, machines)


async def test_an_operator_may_accept_it_at_once(rig: Rig) -> None:
    assert await accept_loss(rig.engine, Scope.CLOUD, "sim") == 0
    rig.chaos(emptyLists=1)
    await rig.turn(10)
    assert await accept_loss(rig.engine, Scope.CLOUD, "sim") == 5
    await rig.settle(3)
    assert len(rig.records(State.GONE)) == 5
    with pytest.raises(NotFoundError, match="there is no cloud 'x'; there is: sim"):
        await accept_loss(rig.engine, Scope.CLOUD, "x")


async def test_machines_that_are_being_deleted_do_not_count(rig: Rig) -> None:
    await rig.provider.delete_nodes("g", [fake(i) for i in (await rig.shown())[:4]])
    await rig.settle(3)
    assert (len(rig.records(State.GONE)), await rig.events("breaker")) == (4, [])


async def test_machines_that_a_late_list_does_not_have_yet_do_not_count(tmp_path: Path) -> None:
    options = SimulatedOptions(list_lag=timedelta(seconds=60))
    async with running(Rig(tmp_path, options=options)) as rig:
        await rig.settle(8)
        await rig.provider.increase_size("g", 5)
        await rig.settle(4)
        assert (await rig.states(), rig.cloud.calls()["list"] > 4) == (["booting"] * 5, True)
        assert await rig.events("breaker") == []


async def test_an_unknown_create_is_not_settled_by_a_doubted_list(rig: Rig) -> None:
    """It would be taken for one that was never made, and made again."""
    rig.chaos(emptyLists=1, create={"lost": {"next": 1}})
    await rig.turn(10)
    await rig.provider.increase_size("g", 1)
    await rig.settle(20)
    assert rig.cloud.calls()["create"] == 6
    rig.chaos()
    await rig.settle(5)
    assert (await rig.states(), len(rig.alive())) == (["running"] * 6, 6)


async def test_a_missing_machine_is_believed_gone_when_its_node_is_not_ready(tmp_path: Path) -> None:
    cluster, cloud = MemoryCluster(), Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, a_group()), cluster=cluster) as case:
        names = await case.grow(5)
        cluster.join(*names)
        await case.turns(1)
        cluster.fall_ill(case.clock.now(), names[0])
        cloud.is_blind = True
        await case.turns(4)
        assert [r.name for r in case.machines(State.GONE)] == [names[0]]
        assert sorted(r.name for r in case.machines(State.RUNNING)) == sorted(names[1:])


async def test_not_ready_nodes_bear_nothing_out_while_most_are_not_ready(tmp_path: Path) -> None:
    """A network that is away takes kubelets and the cloud's own parts with it."""
    cluster, cloud = MemoryCluster(), Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, a_group(min_size=5)), cluster=cluster) as case:
        names = await case.grow(5)
        cluster.join(*names)
        await case.turns(1)
        cluster.fall_ill(case.clock.now(), *names)
        cloud.is_blind = True
        await case.turns(5)
        assert (case.records(State.RUNNING), len(cloud.machines)) == (5, 5)
        assert set(cluster.stages().values()) == {Stage.WANTED}, "no Node object is removed"


async def test_many_that_go_a_few_at_a_time_are_held_back_too(tmp_path: Path) -> None:
    cloud = Hiding()
    async with stepped(tmp_path, desired_state({"a": cloud}, a_group(min_size=6))) as case:
        await case.grow(6)
        ids = list(cloud.machines)
        for start in (0, 2, 4):
            cloud.hidden.update(ids[start : start + 2])
            await case.turns(3)
        assert (case.records(State.GONE), len(await case.events("breaker"))) == (2, 1)
        cloud.hidden.clear()
        await case.turns(3)
        assert (case.records(State.GONE), len(await case.events("breaker_closed"))) == (0, 1)


async def test_boots_that_vanish_a_few_at_a_time_add_up_though_the_autoscaler_takes_them_back(tmp_path: Path) -> None:
    """It does so within seconds of their failure, and asks for others in their place."""
    cloud = Hiding()
    cloud.shown = lambda machine: replace(machine, state=MachineState.PENDING)
    async with stepped(tmp_path, desired_state({"a": cloud}, a_group())) as case:
        await case.provider.increase_size("g", 10)
        await case.turns(3)
        assert case.records(State.BOOTING) == 10
        ids = sorted(cloud.machines)
        for first, second in zip(ids[::2], ids[1::2], strict=True):
            cloud.hidden |= {first, second}
            await case.turns(3)
            failed = [NodeRef(name="", provider_id=record.provider_id) for record in case.machines(State.FAILED)]
            await case.provider.delete_nodes("g", failed)
        await case.turns(3)
        assert (case.records(State.BOOTING), case.records(State.GONE)) == (8, 2)
        assert await case.events("breaker")


async def test_an_operator_may_accept_that_half_a_group_is_broken(rig: Rig) -> None:
    for record in rig.records(State.RUNNING)[:3]:
        rig.cloud.kill(record.machine_id)
    await rig.settle(40)
    assert len(rig.records(State.RUNNING)) == 5
    assert await accept_loss(rig.engine, Scope.GROUP, "g") == 3
    await rig.settle(30)
    assert len(await rig.events("repair")) == 3
    assert len(rig.alive()) == 5


async def test_the_limits_are_the_settings_own(tmp_path: Path) -> None:
    settings = EngineSettings(absence=replace(MASS_ABSENCE, share=1.0))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        await rig.provider.increase_size("g", 5)
        await rig.settle(5)
        rig.chaos(emptyLists=1)
        await rig.settle(3)
        assert len(rig.records(State.GONE)) == 5
