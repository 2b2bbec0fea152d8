"""The policy that deletes orphans leaves machines alone that the cluster uses, or that could not be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.operations.release import release
from cloudgraft.joining.claims import JoinedNode
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.types import NodeRef
from tests.engine.clusters import MemoryCluster, a_node
from tests.engine.scripted_cloud import Cloud, desired_state, group, lose_journal, stepped

DAY = 86_400.0
POLICY = EngineSettings(delete_orphans=True)


class Failing(Cloud):
    """Its lists can fail."""

    is_away = False

    async def list(self) -> list[Machine]:
        if self.is_away:
            raise UnavailableError("away")
        return list(await super().list())


async def test_an_orphan_whose_node_is_ready_is_not_deleted_by_itself(tmp_path: Path) -> None:
    """A lost journal and an empty first list make orphans of all machines, and pods run on them."""
    cluster, cloud = MemoryCluster(), Cloud()
    plan = desired_state({"a": cloud}, group(), settings=POLICY)
    async with stepped(tmp_path, plan, cluster=cluster) as case:
        names = await case.grow(3)
        cluster.join(*names)
    lose_journal(tmp_path)
    cloud.is_blind = True
    async with stepped(tmp_path, plan, cluster=cluster, clock=case.clock) as case:
        await case.turns(2)
        cloud.is_blind = False
        cluster.is_known = False
        await case.turns(5, 1000)
        assert cloud.deleted == [], "nobody knows whether they are in use"
        cluster.is_known = True
        await case.turns(5, 1000)
        assert cloud.deleted == []
        assert sum("its node is ready" in text for text in await case.events("orphan")) == 3
        cluster.leave(names[0])
        await case.turns(2)
        assert len(cloud.deleted) == 1


async def test_an_orphan_whose_node_has_a_name_of_its_own_is_in_use_too(tmp_path: Path) -> None:
    """Its node has no providerID, and `matchBy: machineID` knows it."""
    cluster, cloud = MemoryCluster(), Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=POLICY), cluster=cluster) as case:
        await case.turns(1)
        name = case.engine.identity.new_name("g")
        tags = case.engine.identity.tags(name, "g")
        cloud.machines["id-9"] = Machine(name=name, machine_id="id-9", provider_id="cloud://9", tags=tags)
        cluster.nodes["host"] = JoinedNode(node=a_node("host", system_uuid="id-9"))
        await case.turns(5, 1000)
        assert cloud.deleted == []
        del cluster.nodes["host"]
        await case.turns(2)
        assert cloud.deleted == ["id-9"]


async def test_an_outage_is_no_time_in_which_an_orphan_was_seen(tmp_path: Path) -> None:
    cloud = Failing()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=POLICY)) as case:
        await case.turns(1)
        name = case.engine.identity.new_name("g")
        cloud.machines["o"] = Machine(name=name, machine_id="o", tags=case.engine.identity.tags(name, "g"))
        await case.turns(2)
        cloud.is_away = True
        await case.turns(4, 1000)
        cloud.is_away = False
        await case.turns(2)
        assert cloud.deleted == []
        await case.turns(4, 1000)
        assert cloud.deleted == ["o"]


async def test_a_machine_that_was_released_long_ago_is_not_deleted_after_lists_missed_it(tmp_path: Path) -> None:
    """It keeps our marks, so that only its record says that it is not ours; its node is not ours to remove either."""
    cluster, cloud = MemoryCluster(), Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=POLICY), cluster=cluster) as case:
        (name,) = await case.grow()
        await release(case.engine, [name], is_dry_run=False)
        await case.turns(2, 10 * DAY)
        cloud.is_blind = True
        await case.turns(4)
        await case.engine.clean()
        assert name not in cluster.claims
        cloud.is_blind = False
        await case.turns(6, 1000)
        assert (len(cloud.machines), cloud.deleted) == (1, [])


@pytest.mark.parametrize("is_deleted", [False, True], ids=["while the other is there", "after the other is gone"])
async def test_a_machine_under_an_id_that_was_given_away_again_is_an_orphan(tmp_path: Path, is_deleted: bool) -> None:
    """An old journal was restored: it has the machine that had this id before, and not the one that has it now."""
    cloud = Cloud()
    limits = GuardLimits(max_machines=1)
    plan = desired_state({"a": cloud}, group(), settings=EngineSettings(guards=limits))
    async with stepped(tmp_path, plan) as case:
        await case.grow(1)
        [before] = case.machines()
        if is_deleted:
            await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=before.provider_id)])
            await case.turns(4)
        name = case.engine.identity.new_name("g")
        tags = case.engine.identity.tags(name, "g")
        cloud.machines = {before.machine_id: Machine(name=name, machine_id=before.machine_id, tags=tags)}
        await case.turns(1)
        found = case.engine.workers["a"].observer.orphans
        assert [(orphan.machine.name, orphan.is_proven) for orphan in found] == [(name, True)]
        assert case.engine.guard_usage.refusal("a", None) is not None, "it counts against the guards"
        assert cloud.deleted == ([before.machine_id] if is_deleted else [])
