"""What is told of machines to whoever looks after their nodes (R57): all of them, and nothing that may be another's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.desired import Joining
from cloudgraft.engine.operations.release import release
from cloudgraft.engine.reconcile.machine_nodes import claim_of
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.joining.claims import Stage
from cloudgraft.joining.match import Problem, ProblemKind, Way, matched
from cloudgraft.sdk.driver import DriverTraits, ProviderIdBy
from cloudgraft.store.records import Change, MachineRecord, Presence, State
from tests.engine.clusters import MemoryCluster, a_node
from tests.engine.engine_rig import fake
from tests.engine.makers import NOW, a_machine, a_record, an_observation
from tests.engine.scripted_cloud import TEMPLATE, Case, Cloud, desired_state, group, stepped

MINUTE = 60.0
LABELLED = group(template=replace(TEMPLATE, labels={"pool": "lab"}))


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def case(tmp_path: Path, cluster: MemoryCluster, cloud: Cloud) -> AsyncIterator[Case]:
    async with stepped(tmp_path, desired_state({"a": cloud}, LABELLED), cluster=cluster) as made:
        yield made


def _fleet(*records: MachineRecord) -> Fleet:
    fleet = Fleet()
    for record in records:
        fleet.apply(Change(machines=[record]))
    return fleet


async def test_a_machine_is_claimed_from_its_first_intent_to_its_end(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    cloud.shown = lambda machine: replace(machine, addresses=("10.0.0.7", "host-7"))
    (name,) = await case.grow()
    await case.turns(1)
    claim = cluster.claims[name]
    assert (claim.cloud, claim.group, claim.stage) == ("a", "g", Stage.WANTED)
    assert (claim.provider_id, claim.machine_id, claim.addresses) == (f"cloud://{name}", "id-0", ("10.0.0.7", "host-7"))
    assert claim.labels["pool"] == "lab"
    assert claim.sets_provider_id
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.engine.workers["a"].act()
    assert cluster.claims[name].stage is Stage.GOING
    await case.turns(3)
    gone = cluster.claims[name]
    assert (gone.stage, gone.provider_id, gone.addresses) == (Stage.GONE, f"cloud://{name}", ())
    await case.turns(31, MINUTE)
    assert cluster.claims == {}


async def test_a_machine_that_failed_is_going(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    await case.turns(17, MINUTE)
    assert case.engine.fleet.machines[name].state is State.FAILED
    assert cluster.stages() == {name: Stage.GOING}


async def test_a_machine_that_its_cloud_lost_is_gone_and_wanted_again_when_it_turns_up(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    (name,) = await case.grow()
    cloud.is_blind = True
    await case.turns(4)
    assert cluster.stages() == {name: Stage.GONE}
    cloud.is_blind = False
    await case.turns(2)
    assert cluster.stages() == {name: Stage.WANTED}


async def test_the_node_of_a_machine_that_its_cloud_lost_is_left_alone_while_it_is_ready(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """Lists that are wrong must not cost the pods on it."""
    (name,) = await case.grow()
    cluster.join(name)
    cloud.is_blind = True
    await case.turns(4)
    assert case.engine.fleet.machines[name].state is State.GONE
    assert cluster.stages() == {name: Stage.GOING}
    cluster.fall_ill(case.clock.now(), name)
    await case.turns(1)
    assert cluster.stages() == {name: Stage.GONE}


async def test_without_a_cluster_nothing_waits_to_be_told(case: Case, cluster: MemoryCluster, cloud: Cloud) -> None:
    """What waits wakes the loop again and again."""
    (name,) = await case.grow()
    case.engine.reconfigure(desired_state({"a": cloud}, LABELLED), Joining())
    await case.engine.refresh()
    worker = case.engine.workers["a"]
    worker.nudge()
    cluster.join(name)
    await case.turns(1)
    assert (worker._pause() or 60) > 1


async def test_a_released_machine_is_not_claimed(case: Case, cluster: MemoryCluster) -> None:
    first, second = await case.grow(2)
    await release(case.engine, [first], is_dry_run=False)
    await case.turns(1)
    assert cluster.stages() == {second: Stage.WANTED}


async def test_a_machine_that_was_never_ordered_leaves_nothing_to_claim(case: Case, cluster: MemoryCluster) -> None:
    await case.turns(1)
    await case.provider.increase_size("g", 1)
    await case.provider.decrease_target_size("g", -1)
    await case.turns(2)
    assert cluster.claims == {}


async def test_what_went_while_the_api_was_away_is_claimed_until_its_node_is_gone_too(
    case: Case, cluster: MemoryCluster
) -> None:
    """R57: an API server that is away for longer than nodeMemory must not leave a Node object for ever."""
    (name,) = await case.grow()
    cluster.join(name)
    cluster.is_known = False
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(60, MINUTE)
    cluster.is_known = True
    await case.turns(2, MINUTE)
    assert cluster.stages() == {name: Stage.GONE}
    cluster.leave(name)
    await case.turns(2, MINUTE)
    assert cluster.claims == {}


async def test_claims_are_handed_over_only_when_they_have_changed(case: Case, cluster: MemoryCluster) -> None:
    await case.grow(3)
    await case.turns(1)
    times = cluster.times
    await case.turns(10)
    assert cluster.times == times


async def test_after_a_restart_what_has_just_gone_is_claimed_again(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    (name,) = await case.grow()
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(3)
    await case.engine.close()
    assert cluster.claims == {}, "who does not lead looks after nobody's nodes"
    async with stepped(tmp_path, desired_state({"a": cloud}, LABELLED), cluster=cluster, clock=case.clock) as again:
        await again.turns(1)
        assert cluster.stages() == {name: Stage.GONE}


async def test_who_writes_the_provider_id_is_the_drivers_word(tmp_path: Path, cluster: MemoryCluster) -> None:
    cloud = Cloud(DriverTraits(provider_id_by=ProviderIdBy.KUBELET))
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as case:
        (name,) = await case.grow()
        assert not cluster.claims[name].sets_provider_id


async def test_a_cloud_that_is_not_configured_any_more_is_disclaimed(case: Case, cluster: MemoryCluster) -> None:
    await case.grow()
    assert cluster.claims
    case.engine.reconfigure(desired_state({"b": Cloud()}, group(cloud="b")))
    await case.engine.refresh()
    assert cluster.claims == {}


async def test_who_looks_after_nodes_can_ask_whether_this_process_still_leads(
    case: Case, cluster: MemoryCluster
) -> None:
    await case.grow()
    assert cluster.may_act()
    case.engine._leadership.fence("another one leads")
    assert not cluster.may_act()


async def test_another_cluster_is_told_everything_at_the_next_refresh(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    (name,) = await case.grow()
    other = MemoryCluster()
    case.engine.reconfigure(desired_state({"a": cloud}, LABELLED), Joining(cluster=other))
    await case.turns(2)
    assert (other.told, case.engine.joining.cluster) == ({}, cluster)
    await case.engine.refresh()
    await case.turns(2)
    assert other.stages() == {name: Stage.WANTED}
    case.engine.reconfigure(desired_state({"a": cloud}, LABELLED))
    await case.engine.refresh()
    assert case.engine.joining.cluster is other, "what is not given stays"


async def test_labels_that_were_only_learned_are_not_put_on_other_nodes(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    cluster.join(name, labels={"somebody": "did-this", "pool": "lab"})
    await case.turns(2)
    await case.engine.refresh()
    assert (await case.provider.template("g")).labels["somebody"] == "did-this"
    await case.turns(1)
    assert "somebody" not in cluster.claims[name].labels


def test_an_id_that_another_machine_has_by_now_is_not_claimed_for_the_one_before() -> None:
    old = a_record("old", state=State.GONE, machine_id="m-1", provider_id="sim://m-1", ordered_at=1.0)
    new = a_record("new", state=State.RUNNING, presence=Presence.PRESENT)
    claim = claim_of(old, None, _fleet(old, new), is_ours_to_set=True)
    assert claim is not None
    assert (claim.name, claim.provider_id, claim.machine_id) == ("old", "", "")


def test_a_claim_says_from_when_to_when_its_machine_was() -> None:
    """Where no call of ours made it, it may be older than the journal."""
    gone = a_record("old", state=State.GONE, requested_at=1.0, ordered_at=2.0, attempt_at=3.0, gone_at=9.0)
    found = a_record("found", state=State.RUNNING, presence=Presence.PRESENT, requested_at=5.0, ordered_at=5.0)
    fleet = _fleet(gone, found)
    claims = [claim_of(record, None, fleet, is_ours_to_set=True) for record in (gone, found)]
    assert [claim and (claim.ordered_at, claim.gone_at) for claim in claims] == [(2.0, 9.0), (0.0, None)]


def test_a_clock_that_runs_ahead_makes_no_node_older_than_its_machine() -> None:
    """The engine's clock is five minutes ahead: a node that came a minute after its machine seems older than it."""
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT)
    node = a_node(record.name, ready=False, created_at=NOW - 240, ready_since=NOW - 200)
    machine = a_machine(created_at=datetime.fromtimestamp(NOW - 300, UTC))
    told = claim_of(record, an_observation(machine=machine), _fleet(record), is_ours_to_set=True)
    untold = claim_of(
        record, an_observation(machine=replace(machine, created_at=None)), _fleet(record), is_ours_to_set=True, lead=300
    )
    for claim in (told, untold):
        assert claim is not None
        assert matched([claim], [node], [Way.NAME]).nodes == {record.name: node.key}
    wrong = claim_of(record, None, _fleet(record), is_ours_to_set=True)
    assert wrong is not None
    assert matched([wrong], [node], [Way.NAME]).nodes == {}, "else this test shows nothing"


def test_while_there_are_two_machines_for_one_intent_no_provider_id_is_written() -> None:
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT)
    observation = an_observation(machine=a_machine(), extras=(a_machine("m-2"),))
    claim = claim_of(record, observation, _fleet(record), is_ours_to_set=True)
    assert claim is not None
    assert not claim.sets_provider_id


async def test_what_keeps_nodes_from_being_looked_after_is_reported(case: Case, cluster: MemoryCluster) -> None:
    assert (await make_report(case.engine)).node_problems == []
    cluster.trouble = (Problem(kind=ProblemKind.STRANGER, node="n", message="nobody asked for node n"),)
    cluster.is_known = False
    report = await make_report(case.engine)
    assert report.node_problems == ["nobody asked for node n"]
    assert "has not been heard of" in report.cluster_trouble
