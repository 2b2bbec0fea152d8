"""Of two machines for one intent the one that joined is kept (law 3), and none goes while nobody can tell which did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.machines.decide import Delete, Move, Situation, Stay, decide
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.joining.claims import JoinedNode
from cloudgraft.joining.match import Rivals
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import Change, Presence, State
from tests.engine.clusters import MemoryCluster, a_node
from tests.engine.makers import NOW, a_machine, a_record, an_observation, observed
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped

MINUTE = 60.0


class Exact(MemoryCluster):
    """A node that carries a providerID is the machine's that claims it, and nobody's else: as :mod:`match` has it."""

    def joined(self, name: str) -> Any:
        claim = self.claims.get(name)
        found = (joined for joined in self.nodes.values() if claim and joined.node.provider_id == claim.provider_id)
        return next(found, None)


@pytest.fixture
def cluster() -> Exact:
    return Exact()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def case(tmp_path: Path, cluster: Exact, cloud: Cloud) -> AsyncIterator[Case]:
    async with stepped(tmp_path, desired_state({"a": cloud}, group()), cluster=cluster) as made:
        yield made


def double(cloud: Cloud, **changes: Any) -> Machine:
    """A second machine for the intent of the first one."""
    (first,) = cloud.machines.values()
    made = replace(first, **{"machine_id": "id-9", "provider_id": "cloud://second", **changes})
    cloud.machines[made.machine_id] = made
    return made


async def test_the_one_that_joined_is_kept_though_its_create_was_never_answered(
    case: Case, cluster: Exact, cloud: Cloud
) -> None:
    """The providerID of its node is in no claim, and the journal has the other one, which is the older."""
    (name,) = await case.grow()
    double(cloud)
    cluster.join(name, provider_id="cloud://second")
    await case.turns(2)
    assert (list(cloud.machines), cloud.deleted) == (["id-9"], ["id-0"])
    record = case.engine.fleet.machines[name]
    assert (record.machine_id, record.provider_id, record.state) == ("id-9", "cloud://second", State.RUNNING)


async def test_none_is_deleted_while_the_cluster_cannot_be_seen(case: Case, cluster: Exact, cloud: Cloud) -> None:
    (name,) = await case.grow()
    cluster.is_known = False
    double(cloud)
    await case.turns(10)
    assert cloud.deleted == []
    cluster.join(name, provider_id="cloud://second")
    cluster.is_known = True
    await case.turns(2)
    assert cloud.deleted == ["id-0"]


async def test_none_is_deleted_while_a_node_may_be_either_and_an_operator_is_told(
    case: Case, cluster: Exact, cloud: Cloud
) -> None:
    (name,) = await case.grow()
    double(cloud)
    cluster.join(name, provider_id="")
    await case.turns(10)
    assert cloud.deleted == []
    (told,) = await case.events("double")
    assert "id-0 and id-9" in told
    (shown,) = (await make_report(case.engine, group="g")).groups[0].machines
    assert "none is deleted" in shown.trouble
    cluster.join(name, system_uuid="id-9", provider_id="")
    await case.turns(2)
    assert cloud.deleted == ["id-0"]


async def test_the_one_that_joined_under_a_name_of_its_own_is_kept(case: Case, cluster: Exact, cloud: Cloud) -> None:
    """Its node has no providerID yet, and is known by `matchBy: machineID` alone."""
    (name,) = await case.grow()
    double(cloud)
    cluster.nodes["host-9"] = JoinedNode(node=a_node("host-9", system_uuid="id-9"))
    await case.turns(3)
    assert cloud.deleted == ["id-0"]
    assert case.engine.fleet.machines[name].machine_id == "id-9"


async def test_what_an_operator_deletes_in_the_cloud_ends_the_doubt(case: Case, cluster: Exact, cloud: Cloud) -> None:
    (name,) = await case.grow()
    double(cloud)
    cluster.join(name, provider_id="")
    await case.turns(2)
    del cloud.machines["id-0"]
    await case.turns(3)
    record = case.engine.fleet.machines[name]
    assert (record.machine_id, record.state, cloud.deleted) == ("id-9", State.RUNNING, [])


async def test_a_clone_of_a_machine_that_joined_long_ago_goes(case: Case, cluster: Exact, cloud: Cloud) -> None:
    """Also where the cloud makes one providerID of the name that both have."""
    (name,) = await case.grow()
    now = datetime.fromtimestamp(case.clock.now(), UTC)
    (first,) = cloud.machines.values()
    cloud.machines["id-0"] = replace(first, created_at=now)
    await case.turns(1)
    cluster.join(name, created_at=case.clock.now())
    await case.turns(2, 2 * 3600)
    double(cloud, provider_id=first.provider_id, created_at=datetime.fromtimestamp(case.clock.now(), UTC))
    await case.turns(2)
    assert cloud.deleted == ["id-9"]


async def test_one_that_joins_while_the_journal_is_written_is_not_deleted(
    case: Case, cluster: Exact, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = await case.grow()
    double(cloud)
    write = case.engine.journal.write

    async def slow(change: Change) -> None:
        if any(event.kind == "removal" for event in change.events):
            cluster.join(name, provider_id="cloud://second")
        await write(change)

    monkeypatch.setattr(case.engine.journal, "write", slow)
    await case.turns(1)
    assert cluster.nodes, "its deletion was about to begin"
    assert cloud.deleted == []
    await case.turns(2)
    assert cloud.deleted == ["id-0"]


async def test_a_machine_does_not_fail_for_want_of_a_node_while_its_double_has_one(
    case: Case, cluster: Exact, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The double joins in the very moment in which that is written down."""
    (name,) = await case.grow()
    cluster.is_known = False
    double(cloud)
    await case.turns(1)
    cluster.is_known = True
    cluster.join("nobody", provider_id="cloud://nobody")
    observer = case.engine.workers["a"].observer
    observer.put(name, observed(observer.observation(name), retry_at=float("inf")))  # neither may be deleted yet
    await case.turns(14, MINUTE)
    worker = case.engine.workers["a"]
    real = worker._write

    async def late(moves: object) -> None:
        cluster.join(name, provider_id="cloud://second")
        await real(moves)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(worker, "_write", late)
    await case.turns(3, MINUTE)
    assert name in cluster.nodes
    assert case.engine.fleet.machines[name].state is State.RUNNING


def test_nothing_is_concluded_from_a_machine_whose_double_has_joined_since_the_latest_list() -> None:
    """It would fail for want of a node. The next list makes the double the one that the record stands for."""
    settings = EngineSettings()
    late = {"joined": False, "unjoined_for": settings.join_deadline.total_seconds()}
    at = Situation(now=NOW, settings=settings)
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT)
    ready = Rivals(frozenset({"m-2"}), frozenset({"m-2"}))
    extras = (a_machine("m-2"),)
    for rivals, expected in ((Rivals(), Move), (ready, Stay)):
        observation = an_observation(machine=a_machine(), extras=extras, is_ours=True, rivals=rivals, **late)
        assert isinstance(decide(running, observation, at), expected)
    deleting = replace(running, state=State.DELETING)
    observation = an_observation(machine=a_machine(), extras=(a_machine("m-2"),), is_ours=True, rivals=ready)
    assert isinstance(decide(deleting, observation, at), Delete), "of what is not wanted, everything goes"


async def test_both_go_when_the_autoscaler_deletes_their_node(case: Case, cluster: Exact, cloud: Cloud) -> None:
    (name,) = await case.grow()
    double(cloud)
    cluster.join(name, provider_id="")
    await case.turns(2)
    await case.provider.delete_nodes("g", [NodeRef(name=name, provider_id=f"cloud://{name}")])
    await case.turns(6, MINUTE)
    assert (len(cloud.deleted), cloud.machines) == (2, {})
