"""A machine that counted as failed while no list showed it: its cloud shows it later, perhaps with a ready node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.joining.claims import JoinedNode, Stage
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import State
from tests.engine.clusters import MemoryCluster, a_node
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped

SETTINGS = EngineSettings(create_deadline=timedelta(seconds=300))


class Silent(Cloud):
    """Creates are carried out, and never answered."""

    async def create(self, spec: MachineSpec) -> Machine:
        if all(machine.name != spec.name for machine in self.machines.values()):
            await super().create(spec)
        raise UnavailableError("no answer")


@pytest.fixture
def cloud() -> Silent:
    return Silent()


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
async def case(tmp_path: Path, cloud: Silent, cluster: MemoryCluster) -> AsyncIterator[Case]:
    """An engine whose only machine counts as failed, and which the autoscaler has taken back: lists were empty."""
    async with failed_case(tmp_path, cloud, cluster) as made:
        [record] = made.machines()
        placeholder = NodeRef(name=record.placeholder, provider_id=record.placeholder)
        await made.provider.delete_nodes("g", [placeholder])
        await made.turns(1)
        assert made.machines(State.GONE)
        cloud.is_blind = False
        yield made


@asynccontextmanager
async def failed_case(directory: Path, cloud: Silent, cluster: MemoryCluster) -> AsyncIterator[Case]:
    """An engine whose only machine counts as failed: its create was not answered, and lists are still empty."""
    plan = desired_state({"a": cloud}, group(), settings=SETTINGS)
    async with stepped(directory, plan, cluster=cluster) as made:
        await made.turns(1)
        cloud.is_blind = True
        await made.provider.increase_size("g", 1)
        await made.turns(80, 10)
        [record] = made.machines()
        assert record.state is State.FAILED
        yield made


async def test_one_that_still_counts_as_failed_is_kept_when_its_node_is_ready(
    tmp_path: Path, cloud: Silent, cluster: MemoryCluster
) -> None:
    async with failed_case(tmp_path, cloud, cluster) as case:
        [record] = case.machines()
        cluster.join(record.name, provider_id=f"cloud://{record.name}")
        cloud.is_blind = False
        await case.turns(6)
        assert cloud.deleted == []
        assert await case.states() == ["RUNNING"]
        assert await case.provider.target_size("g") == 1


async def test_one_that_still_counts_as_failed_is_not_deleted_while_the_cluster_cannot_be_seen(
    tmp_path: Path, cloud: Silent, cluster: MemoryCluster
) -> None:
    async with failed_case(tmp_path, cloud, cluster) as case:
        cluster.is_known = False
        cloud.is_blind = False
        await case.turns(6)
        assert cloud.deleted == []
        cluster.is_known = True
        await case.turns(6)
        assert len(cloud.deleted) == 1  # it has no node


async def test_it_is_taken_back_while_its_node_is_ready(case: Case, cloud: Silent, cluster: MemoryCluster) -> None:
    [record] = case.machines()
    cluster.join(record.name, provider_id=f"cloud://{record.name}")
    await case.turns(5)
    assert cloud.deleted == []
    assert await case.states() == ["RUNNING"]
    assert await case.provider.target_size("g") == 1
    assert any("its node is ready: it is taken back" in text for text in await case.events("state"))


async def test_it_is_taken_back_also_if_its_node_has_a_name_of_its_own(
    case: Case, cloud: Silent, cluster: MemoryCluster
) -> None:
    """Its node has no providerID yet, and `matchBy: machineID` knows it."""
    [id_] = cloud.machines
    cluster.nodes["host"] = JoinedNode(node=a_node("host", system_uuid=id_))
    await case.turns(5)
    assert cloud.deleted == []
    assert await case.states() == ["RUNNING"]


async def test_it_is_deleted_without_a_node(case: Case, cloud: Silent) -> None:
    await case.turns(5)
    assert len(cloud.deleted) == 1
    assert await case.provider.target_size("g") == 0


async def test_it_stays_while_the_cluster_cannot_be_seen(case: Case, cloud: Silent, cluster: MemoryCluster) -> None:
    cluster.is_known = False
    await case.turns(5)
    assert cloud.deleted == []
    cluster.is_known = True
    await case.turns(5)
    assert len(cloud.deleted) == 1


async def test_one_that_the_autoscaler_scaled_down_goes_although_its_node_is_ready(tmp_path: Path) -> None:
    cloud, cluster = Cloud(), MemoryCluster()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=SETTINGS), cluster=cluster) as case:
        [name] = await case.grow(1)
        cluster.join(name)
        await case.turns(2)
        [record] = case.machines()
        kept = dict(cloud.machines)
        await case.provider.delete_nodes("g", [NodeRef(name=name, provider_id=record.provider_id)])
        await case.turns(4)
        assert [r.state for r in case.machines()] == [State.GONE]
        cloud.machines = kept  # its cloud had only pretended to
        await case.turns(4)
        assert len(cloud.deleted) == 2


async def test_the_node_of_one_that_failed_is_not_removed_while_it_is_ready(
    case: Case, cloud: Silent, cluster: MemoryCluster
) -> None:
    """Lists do not show its machine; a node that is ready proves all the same that it is there."""
    cloud.is_blind = True
    [record] = case.machines()
    cluster.join(record.name, provider_id=f"cloud://{record.name}")
    await case.turns(10)
    assert cluster.stages() == {record.name: Stage.GOING}
    cluster.fall_ill(case.clock.now(), record.name)
    await case.turns(2)
    assert cluster.stages() == {record.name: Stage.GONE}


@pytest.mark.parametrize("why", ["its group is gone", "its cloud calls it failed"])
async def test_a_lost_machine_that_cannot_be_taken_back_is_left_alone_while_its_node_is_ready(
    tmp_path: Path, why: str
) -> None:
    """Nobody deleted it: a list was wrong for a while, and a group that only shrinks ended meanwhile."""
    cloud, cluster = Cloud(), MemoryCluster()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), group("h")), cluster=cluster) as case:
        [name] = await case.grow(1)
        cluster.join(name)
        if why == "its group is gone":
            case.engine.reconfigure(desired_state({"a": cloud}, group("h")))
        else:
            cloud.shown = lambda machine: replace(machine, state=MachineState.FAILED)
        await case.engine.refresh()
        cloud.is_blind = True
        await case.turns(6)
        assert case.engine.fleet.machines[name].state is State.GONE
        await case.engine.refresh()
        cloud.is_blind = False
        await case.turns(6)
        assert cloud.deleted == []
        [told] = await case.events("returned")
        assert "its node is ready, so it is left alone" in told
        cluster.fall_ill(case.clock.now(), name)
        await case.turns(3)
        assert cloud.deleted == ["id-0"]
