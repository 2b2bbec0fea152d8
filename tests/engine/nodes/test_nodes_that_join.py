"""Machines whose nodes must join: deadlines that an API server which is away cannot make anybody miss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.nodes.tracking import Nodes
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.joining.claims import JoinedNode
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import DeadlineError
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.conditions import until
from tests.engine.clusters import MemoryCluster, a_node
from tests.engine.makers import a_record, an_observation
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, live, stepped

MINUTE = 60.0


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def case(tmp_path: Path, cluster: MemoryCluster, cloud: Cloud) -> AsyncIterator[Case]:
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as made:
        yield made


def state(case: Case, name: str) -> str:
    return case.engine.fleet.machines[name].state.value


async def test_a_machine_whose_node_does_not_join_in_time_fails(case: Case) -> None:
    """Law 7: class other, so that the autoscaler tries another group."""
    (name,) = await case.grow()
    await case.turns(14, MINUTE)
    assert state(case, name) == "running"
    await case.turns(2, MINUTE)
    record = case.engine.fleet.machines[name]
    assert (record.state, record.error and (record.error.code, record.error.error_class)) == (
        State.FAILED,
        ("join_deadline", 99),
    )


async def test_a_machine_whose_node_has_joined_stays(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    cluster.join(name)
    await case.turns(20, MINUTE)
    assert state(case, name) == "running"


async def test_a_machine_that_may_have_one_of_two_nodes_does_not_fail(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow(1)
    cluster.disputed = {name}
    await case.turns(60, 60.0)
    assert case.engine.fleet.machines[name].state is State.RUNNING
    cluster.disputed = set()
    await case.turns(60, 60.0)
    assert case.engine.fleet.machines[name].state is not State.RUNNING


async def test_no_machine_fails_because_the_api_was_away(case: Case, cluster: MemoryCluster) -> None:
    """It is away over the deadline; what it shows when it comes back is not held against anybody at once."""
    (name,) = await case.grow()
    await case.turns(5, MINUTE)
    cluster.is_known = False
    await case.turns(60, MINUTE)
    assert state(case, name) == "running"
    cluster.is_known = True
    await case.turns(9, MINUTE)
    assert state(case, name) == "running"
    await case.turns(2, MINUTE)
    assert state(case, name) == "failed", "the time before counts"


async def test_a_node_that_joins_while_the_api_is_away_is_in_time(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    await case.turns(14, MINUTE)
    cluster.is_known = False
    await case.turns(3, MINUTE)
    cluster.join(name)
    cluster.is_known = True
    await case.turns(3, MINUTE)
    assert state(case, name) == "running"


async def test_a_node_that_comes_in_the_very_moment_of_the_deadline_is_in_time(
    case: Case, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was missing when that was decided, and is there when it is written down."""
    (name,) = await case.grow()
    await case.turns(14, MINUTE)
    worker = case.engine.workers["a"]
    write = worker._write

    async def late(moves: object) -> None:
        cluster.join(name)
        await write(moves)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(worker, "_write", late)
    await case.turns(3, MINUTE)
    assert cluster.nodes
    assert state(case, name) == "running"


async def test_a_machine_whose_node_was_there_and_vanished_is_left_to_the_autoscaler(
    case: Case, cluster: MemoryCluster
) -> None:
    (name,) = await case.grow()
    cluster.join(name)
    await case.turns(1, MINUTE)
    cluster.leave(name)
    await case.turns(60, MINUTE)
    assert state(case, name) == "running"
    (told,) = (await make_report(case.engine, group="g")).groups[0].machines
    assert (told.joined, told.node and told.node.state) == (False, "left")
    assert f"its node {name} is not in the cluster any more" in (await explain(case.engine, name)).verdict


async def test_after_a_restart_the_deadline_begins_anew(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """Whether its node was there once is not remembered; a machine must not pay for that."""
    (name,) = await case.grow()
    await case.turns(14, MINUTE)
    await case.engine.close()
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster, clock=case.clock) as again:
        await again.turns(14, MINUTE)
        assert state(again, name) == "running"
        await again.turns(2, MINUTE)
        assert state(again, name) == "failed"


async def test_after_a_restart_machines_that_had_their_time_long_ago_do_not_fail(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """A kubeconfig of another cluster, or a cluster restored from a backup, must not cost all machines at once."""
    names = await case.grow(3)
    cluster.join(*names)
    await case.turns(20, MINUTE)
    await case.engine.close()
    other = MemoryCluster()
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=other, clock=case.clock) as again:
        await again.turns(60, MINUTE)
        assert {state(again, name) for name in names} == {"running"}
        (new,) = await again.grow()
        await again.turns(16, MINUTE)
        assert state(again, new) == "failed"


def _lose_journal(where: Path) -> None:
    for file in where.glob("journal.db*"):
        if not file.name.endswith("cluster-id"):
            file.unlink()


async def test_machines_that_were_found_do_not_fail_because_their_nodes_are_not(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """Law 11: the journal was lost, and nobody knows for how long they have run."""
    names = await case.grow(2)
    await case.engine.close()
    _lose_journal(tmp_path)
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster, clock=case.clock) as again:
        await again.turns(60, MINUTE)
        assert {state(again, name) for name in names} == {"running"}


def _seen(nodes: Nodes, record: MachineRecord, *looks: float) -> float:
    observation = an_observation()
    for now in looks:
        nodes.watch(now)
        observation = replace(observation, node=nodes.see(record, observation))
    return observation.node.unjoined_for


def test_a_clock_that_jumps_makes_nobody_late() -> None:
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT)
    assert _seen(Nodes(MemoryCluster()), record, 0.0, 10.0, 20.0) == 20.0
    assert _seen(Nodes(MemoryCluster()), record, 0.0, 1e9) == 300.0, "nobody looked for so long"
    assert _seen(Nodes(MemoryCluster()), record, 100.0, 50.0, 60.0) == 10.0


def test_only_time_between_two_looks_that_both_saw_the_cluster_counts() -> None:
    cluster, observation = MemoryCluster(), an_observation()
    nodes, record = Nodes(cluster), a_record(state=State.RUNNING, presence=Presence.PRESENT)
    for now, is_known in ((0.0, True), (10.0, False), (100.0, True), (110.0, True)):
        cluster.is_known = is_known
        nodes.watch(now)
        observation = replace(observation, node=nodes.see(record, observation))
    assert observation.node.unjoined_for == 10.0


def test_only_a_machine_that_runs_is_expected_to_have_a_node() -> None:
    nodes, observation = Nodes(MemoryCluster()), an_observation()
    booting = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    for now in (0.0, 100.0):
        nodes.watch(now)
        observation = replace(observation, node=nodes.see(booting, observation))
    node = nodes.see(replace(booting, state=State.RUNNING), observation)
    assert (node.joined, node.unjoined_for) == (False, 0.0)


async def test_of_two_machines_for_one_intent_the_one_that_joined_is_kept(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """Law 3, though the other is the one that the journal has, and the older."""
    (name,) = await case.grow()
    (first,) = cloud.machines.values()
    cloud.machines["id-9"] = replace(first, machine_id="id-9", provider_id="cloud://second")
    cluster.join(name, provider_id="cloud://second")
    await case.turns(2)
    assert (list(cloud.machines), cloud.deleted) == (["id-9"], ["id-0"])
    record = case.engine.fleet.machines[name]
    assert (record.machine_id, record.provider_id, record.state) == ("id-9", "cloud://second", State.RUNNING)
    assert any("id-9 is kept" in message for message in await case.events("double"))


class Silent(Cloud):
    """It makes machines, does not answer, and lists none of them."""

    creates = 0

    async def create(self, spec: MachineSpec) -> Machine:
        self.creates += 1
        await super().create(spec)
        raise DeadlineError("no answer")


async def test_a_machine_whose_node_is_ready_was_made_whatever_its_cloud_says(
    tmp_path: Path, cluster: MemoryCluster
) -> None:
    """Law 3: it is neither made again, nor given up, nor then deleted with the pods that it has by now."""
    cloud = Silent()
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as case:
        cloud.is_blind = True
        await case.provider.increase_size("g", 1)
        await case.turns(1)
        (record,) = case.machines(State.CREATING)
        cluster.join(record.name, provider_id="cloud://what-nobody-told")
        await case.turns(60, MINUTE)
        assert (case.records(State.CREATING), cloud.creates) == (1, 1)
        cloud.is_blind = False
        await case.turns(2)
        assert (case.records(State.RUNNING), cloud.creates, cloud.deleted) == (1, 1, [])


async def test_a_machine_whose_providerid_a_ready_node_has_was_made_too(tmp_path: Path, cluster: MemoryCluster) -> None:
    """Its node has a name of its own, but its driver could tell the providerID before the machine was there."""
    cloud = Silent(DriverTraits(provider_id="cloud://{name}"))
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as case:
        cloud.is_blind = True
        await case.provider.increase_size("g", 1)
        await case.turns(1)
        (record,) = case.machines(State.CREATING)
        cluster.nodes[record.name] = JoinedNode(node=a_node("host", provider_id=record.provider_id))
        await case.turns(60, MINUTE)
        assert (case.records(State.CREATING), cloud.creates) == (1, 1)
        cloud.is_blind = False
        await case.turns(2)
        assert (case.records(State.RUNNING), cloud.creates, cloud.deleted) == (1, 1, [])


@pytest.mark.parametrize("shown", [MachineState.PENDING, MachineState.FAILED])
async def test_a_boot_that_may_have_one_of_two_nodes_is_not_given_up(
    case: Case, cloud: Cloud, cluster: MemoryCluster, shown: MachineState
) -> None:
    cloud.shown = lambda machine: replace(machine, state=MachineState.PENDING)
    await case.provider.increase_size("g", 1)
    await case.turns(2)
    (record,) = case.machines(State.BOOTING)
    cluster.disputed.add(record.name)
    cloud.shown = lambda machine: replace(machine, state=shown)
    await case.turns(60, MINUTE)
    assert (case.records(State.BOOTING), cloud.deleted) == (1, [])
    cluster.disputed.clear()
    await case.turns(2)
    assert len(cloud.deleted) == 1


async def test_the_report_tells_of_nodes(case: Case, cluster: MemoryCluster) -> None:
    ready, ill, none = await case.grow(3)
    cluster.join(ready, ill)
    cluster.fall_ill(case.clock.now(), ill)
    await case.turns(1, MINUTE)
    told = (await make_report(case.engine, group="g")).groups[0]
    nodes = {m.name: (m.joined, m.node and (m.node.state, m.node.unready_for)) for m in told.machines}
    assert nodes == {ready: (True, ("ready", None)), ill: (True, ("unready", 60.0)), none: (False, None)}
    assert (told.nodes_joined, told.nodes_unready) == (2, 1)
    reasons = [reason.what for reason in (await explain(case.engine, "g")).reasons]
    assert "1 of its 2 nodes are not ready" in reasons
    assert f"its node {ill} has not been ready for 1 minutes" in (await explain(case.engine, ill)).verdict
    assert "its node has not joined the cluster" in (await explain(case.engine, none)).verdict
    cluster.is_known = False
    await case.turns(1)
    told = (await make_report(case.engine, group="g")).groups[0]
    assert {m.joined for m in told.machines} == {None}
    assert told.nodes_joined is None


class Hanging(Cloud):
    """Its lists hang when a test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def list(self) -> Sequence[Machine]:
        await self.gate.wait()
        return await super().list()


async def test_news_of_nodes_is_looked_at_while_the_cloud_hangs(tmp_path: Path) -> None:
    cluster, cloud = MemoryCluster(), Hanging()
    async with live(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as engine:
        await EngineProvider(engine).increase_size("g", 1)
        await until(lambda: bool(cluster.claims))
        cloud.gate.clear()
        (name,) = cluster.claims
        cluster.join(name)
        await until(lambda: engine.workers["a"].observer.observation(name).node.joined is True)


async def test_without_a_cluster_no_machine_is_expected_to_have_a_node(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group())) as case:
        (name,) = await case.grow()
        await case.turns(30, MINUTE)
        assert state(case, name) == "running"
        (told,) = (await make_report(case.engine, group="g")).groups[0].machines
        assert (told.joined, told.node) == (None, None)


async def test_a_boot_whose_node_is_ready_is_not_given_up_for_lists_without_it(tmp_path: Path) -> None:
    """It would be deleted as soon as a list shows it again. The same while nobody knows whether its node is ready."""
    cluster, cloud = MemoryCluster(), Cloud()
    cloud.shown = lambda machine: replace(machine, state=MachineState.PENDING)
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(2)
        (record,) = case.machines(State.BOOTING)
        cluster.join(record.name)
        for is_known in (True, False):
            cluster.is_known, cloud.is_blind = is_known, True
            await case.turns(3)
            cluster.is_known, cloud.is_blind = True, False
            await case.turns(3)
            assert (case.records(State.BOOTING), cloud.deleted) == (1, [])
        cluster.leave(record.name)
        cloud.is_blind = True
        await case.turns(3)
        assert case.records(State.FAILED) == 1


@pytest.mark.parametrize("state", [MachineState.FAILED, MachineState.DELETING])
async def test_a_boot_that_may_have_a_ready_node_is_not_given_up_while_the_api_is_away(
    tmp_path: Path, state: MachineState
) -> None:
    cluster, cloud = MemoryCluster(), Cloud()
    cloud.shown = lambda machine: replace(machine, state=MachineState.PENDING)
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(2)
        cluster.join(case.machines()[0].name)
        cluster.is_known = False
        cloud.shown = lambda machine: replace(machine, state=state)
        await case.turns(3)
        cluster.is_known = True
        await case.turns(3)
        assert (case.records(State.BOOTING), cloud.deleted) == (1, [])
        cluster.leave(case.machines()[0].name)
        await case.turns(1)
        assert case.records(State.FAILED) == 1
