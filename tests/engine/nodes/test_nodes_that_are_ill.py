"""Machines whose nodes are not ready for long are replaced, unless it is the cluster itself that is ill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, RepairSettings
from cloudgraft.engine.machines.repair import due_at
from cloudgraft.sdk.driver import MachineState
from cloudgraft.store.records import State
from tests.engine.clusters import MemoryCluster
from tests.engine.makers import NOW, an_observation
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped

MINUTE = 60.0
SETTINGS = RepairSettings(after=timedelta(minutes=5), not_ready_after=timedelta(minutes=30))


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
async def case(tmp_path: Path, cluster: MemoryCluster) -> AsyncIterator[Case]:
    plan = desired_state({"a": Cloud()}, group(), group("h"), settings=EngineSettings(repair=SETTINGS))
    async with stepped(tmp_path, plan, cluster=cluster) as made:
        yield made


async def four(case: Case, cluster: MemoryCluster) -> list[str]:
    names = await case.grow(4)
    cluster.join(*names)
    await case.turns(1)
    return names


async def test_a_machine_whose_node_is_not_ready_for_long_is_replaced(case: Case, cluster: MemoryCluster) -> None:
    ill, *others = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), ill)
    await case.turns(29, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING
    await case.turns(4, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.GONE
    running = [record for record in case.machines(State.RUNNING) if record.name not in others]
    assert [record.replaces for record in running] == [ill]
    assert any("its node has not been ready for 31 minutes" in message for message in await case.events("repair"))


async def test_a_node_that_recovers_in_time_is_kept(case: Case, cluster: MemoryCluster) -> None:
    ill, *_ = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), ill)
    await case.turns(29, MINUTE)
    cluster.join(ill)
    await case.turns(10, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING


async def test_one_at_a_time_within_the_share(case: Case, cluster: MemoryCluster) -> None:
    """Two of four in one group are more than may be replaced: the breaker opens. In two groups each has its turn."""
    one, two, *_ = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), one, two)
    await case.turns(35, MINUTE)
    assert case.records(State.RUNNING) == 4
    assert any("2 of 4 machines of group g are broken" in message for message in await case.events("breaker"))


async def test_while_most_nodes_are_not_ready_none_is_replaced(case: Case, cluster: MemoryCluster) -> None:
    """It is the network, or the control plane. Each group alone would have its one machine replaced."""
    (one,) = await case.grow(1)
    (two,) = await case.grow(1, "h")
    cluster.join(one, two)
    await case.turns(1)
    cluster.fall_ill(case.clock.now(), one, two)
    await case.turns(60, MINUTE)
    assert {case.engine.fleet.machines[name].state for name in (one, two)} == {State.RUNNING}
    assert await case.events("breaker") == ["2 of 2 nodes are not ready at once; no machine is replaced for that"]
    cluster.join(two)
    await case.turns(5, MINUTE)
    assert case.engine.fleet.machines[one].state in (State.DELETING, State.GONE), "now it is this one alone"


async def test_while_the_cluster_cannot_be_seen_none_is_replaced(case: Case, cluster: MemoryCluster) -> None:
    ill, *_ = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), ill)
    await case.turns(2, MINUTE)
    cluster.is_known = False
    await case.turns(60, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING
    cluster.is_known = True
    await case.turns(25, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING, "it may have been ready all the time"
    await case.turns(8, MINUTE)
    assert case.engine.fleet.machines[ill].state in (State.DELETING, State.GONE)


async def test_a_node_that_was_ready_while_the_cluster_could_not_be_seen_has_its_time_anew(
    case: Case, cluster: MemoryCluster
) -> None:
    ill, *_ = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), ill)
    await case.turns(28, MINUTE)
    cluster.is_known = False
    await case.turns(60, MINUTE)
    cluster.fall_ill(case.clock.now(), ill)  # it was ready for most of that hour
    cluster.is_known = True
    await case.turns(25, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING
    await case.turns(8, MINUTE)
    assert case.engine.fleet.machines[ill].state in (State.DELETING, State.GONE)


async def test_it_can_be_left_to_the_autoscaler(tmp_path: Path, cluster: MemoryCluster) -> None:
    settings = EngineSettings(repair=replace(SETTINGS, not_ready_after=timedelta(0)))
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group(), settings=settings), cluster=cluster) as case:
        ill, *_ = await four(case, cluster)
        cluster.fall_ill(case.clock.now(), ill)
        await case.turns(90, MINUTE)
        assert case.engine.fleet.machines[ill].state is State.RUNNING


async def test_a_node_that_recovers_while_its_replacement_is_written_is_kept(
    case: Case, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ill, *_ = await four(case, cluster)
    cluster.fall_ill(case.clock.now(), ill)
    repairer = case.engine.workers["a"].repairer
    replaced = repairer._replace

    async def late(*given: object) -> None:
        cluster.join(ill)
        await replaced(*given)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(repairer, "_replace", late)
    await case.turns(35, MINUTE)
    assert case.engine.fleet.machines[ill].state is State.RUNNING
    assert case.records(State.RUNNING) == 4


def test_only_what_we_have_seen_ourselves_counts() -> None:
    """The cluster's clock may be another, or ours may be ahead: since when a node is not ready, it need not be true."""
    assert due_at(an_observation(), SETTINGS, NOW) is None
    assert due_at(an_observation(dead_since=NOW - 60, dead_for=60.0), SETTINGS, NOW) == NOW + 240
    assert due_at(an_observation(unready_since=NOW - 7200), SETTINGS, NOW) == NOW + 30 * MINUTE
    assert due_at(an_observation(unready_since=NOW - 7200, unready_for=1800.0), SETTINGS, NOW) == NOW
    assert due_at(an_observation(unready_since=NOW - 60, unready_for=60.0), SETTINGS, NOW) == NOW + 29 * MINUTE
    both = an_observation(dead_since=NOW - 300, dead_for=300.0, unready_since=NOW)
    assert due_at(both, SETTINGS, NOW) == NOW


async def reported_dead(case: Case, cluster: MemoryCluster) -> str:
    """A machine that its cloud has called failed for long, although its node is ready."""
    wronged, *_ = await four(case, cluster)
    cloud = case.engine.workers["a"].driver
    assert isinstance(cloud, Cloud)
    cloud.shown = lambda m: replace(m, state=MachineState.FAILED) if m.name == wronged else m
    await case.turns(20, MINUTE)
    assert case.engine.fleet.machines[wronged].state is State.RUNNING
    return wronged


async def test_a_dead_machine_is_not_replaced_while_its_node_cannot_be_seen(case: Case, cluster: MemoryCluster) -> None:
    """An upgrade of the control plane must not cost a machine whose cloud is wrong about it."""
    wronged = await reported_dead(case, cluster)
    cluster.is_known = False
    await case.turns(20, MINUTE)
    assert case.engine.fleet.machines[wronged].state is State.RUNNING
    cluster.is_known = True
    await case.turns(20, MINUTE)
    assert case.engine.fleet.machines[wronged].state is State.RUNNING


async def test_a_kubelet_that_restarts_does_not_cost_a_machine_that_its_cloud_calls_dead(
    case: Case, cluster: MemoryCluster
) -> None:
    wronged = await reported_dead(case, cluster)
    cluster.fall_ill(case.clock.now(), wronged)
    await case.turns(4, MINUTE)
    cluster.join(wronged)
    await case.turns(1, MINUTE)
    cluster.fall_ill(case.clock.now(), wronged)
    await case.turns(4, MINUTE)
    assert case.engine.fleet.machines[wronged].state is State.RUNNING
    await case.turns(4, MINUTE)
    assert case.engine.fleet.machines[wronged].state in (State.DELETING, State.GONE)


async def test_time_in_which_the_cluster_could_not_be_seen_does_not_count_against_a_dead_machine(
    case: Case, cluster: MemoryCluster
) -> None:
    wronged = await reported_dead(case, cluster)
    cluster.fall_ill(case.clock.now(), wronged)
    await case.turns(2, MINUTE)
    cluster.is_known = False
    await case.turns(20, MINUTE)
    cluster.is_known = True
    await case.turns(1, MINUTE)
    assert case.engine.fleet.machines[wronged].state is State.RUNNING
