"""Templates that are learned: at a Refresh, for the machines that come next, and over a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.operations.adoption import adopt
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.store.records import Change
from tests.engine.clusters import ALLOCATABLE, CAPACITY, MemoryCluster
from tests.engine.engine_rig import fake
from tests.engine.scripted_cloud import TEMPLATE, Case, Cloud, desired_state, group, stepped

MACHINE = {"size": "s", "disks": (1, 2)}
GROUP = group(machine=MACHINE, template=replace(TEMPLATE, capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi")}))
SILENT = replace(GROUP, template=TemplateDeclaration())  # it says nothing, and there is no shape


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def case(tmp_path: Path, cluster: MemoryCluster, cloud: Cloud) -> AsyncIterator[Case]:
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP), cluster=cluster) as made:
        yield made


async def memory(case: Case) -> str:
    return str((await case.provider.template("g")).allocatable["memory"])


async def test_what_was_learned_is_told_from_the_next_refresh_on(case: Case, cluster: MemoryCluster) -> None:
    """R4."""
    (name,) = await case.grow()
    cluster.join(name, labels={"cni": "x"}, taints=(Taint(key="t"),))
    before = await case.provider.template("g")
    await case.turns(2)
    assert await case.provider.template("g") is before
    await case.engine.refresh()
    template = await case.provider.template("g")
    assert (template.labels, template.taints) == ({"cni": "x"}, (Taint(key="t"),))
    assert template.capacity == {**CAPACITY, "memory": Quantity("8Gi")}, "what is declared stays"


async def test_a_node_that_is_not_ready_teaches_nothing(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    cluster.join(name)
    cluster.fall_ill(case.clock.now(), name)
    await case.turns(3)
    assert case.engine.fleet.learned == {}


async def test_a_node_that_somebody_has_cordoned_teaches_nothing(case: Case, cluster: MemoryCluster) -> None:
    """Else the taint of a maintenance would be promised for good, and no pod would ever make the group grow again."""
    (name,) = await case.grow()
    cluster.join(name, unschedulable=True, taints=(Taint(key="maintenance"),))
    await case.turns(3)
    assert case.engine.fleet.learned == {}


async def test_a_machine_that_others_have_made_teaches_nothing(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    cloud.machines["id-9"] = Machine(name="theirs", machine_id="id-9", provider_id="cloud://theirs")
    await case.turns(1)
    await adopt(case.engine, "g", ["id-9"], is_dry_run=False)
    await case.turns(2)
    cluster.join("theirs")
    await case.turns(3)
    assert case.engine.workers["a"].observer.observation("theirs").node.joined
    assert case.engine.fleet.learned == {}


async def test_a_group_that_says_nothing_is_served_from_what_was_learned(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """Scale from zero, on a journal that remembers what is not there any more."""
    (name,) = await case.grow()
    cluster.join(name)
    await case.turns(2)
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(4)
    await case.engine.close()
    async with stepped(
        tmp_path, desired_state({"a": cloud}, SILENT), cluster=MemoryCluster(), clock=case.clock
    ) as again:
        assert again.engine.left_out() == {}
        assert (await again.provider.template("g")).allocatable == ALLOCATABLE


async def test_a_group_that_says_nothing_and_of_which_nothing_is_known_is_left_out(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud()}, SILENT), cluster=MemoryCluster()) as case:
        assert "set template.capacity.cpu" in case.engine.left_out()["g"]


async def test_other_machine_settings_are_learned_anew(case: Case, cluster: MemoryCluster, cloud: Cloud) -> None:
    (name,) = await case.grow()
    cluster.join(name, labels={"cni": "x"})
    await case.turns(2)
    case.engine.reconfigure(desired_state({"a": cloud}, replace(GROUP, machine={"size": "l"})))
    await case.engine.refresh()
    await case.turns(3)
    await case.engine.refresh()
    assert "cni" not in (await case.provider.template("g")).labels, "the old node tells nothing of new ones"
    (new,) = await case.grow()
    cluster.join(new, labels={"cni": "y"})
    await case.turns(2)
    await case.engine.refresh()
    assert (await case.provider.template("g")).labels["cni"] == "y"


async def test_a_label_that_is_not_declared_any_more_is_not_learned_from_old_nodes(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """It would be promised for ever, and no new node would have it."""
    (name,) = await case.grow()
    cluster.join(name, labels={"tier": "old"})
    template = replace(TEMPLATE, labels={"tier": "old"})
    for declared in (template, TEMPLATE):
        case.engine.reconfigure(desired_state({"a": cloud}, replace(GROUP, template=declared)))
        await case.engine.refresh()
        await case.turns(2)
        await case.engine.refresh()
    assert "tier" not in (await case.provider.template("g")).labels


async def test_what_was_learned_is_the_same_after_a_restart(
    tmp_path: Path, case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    """The settings come back from JSON, where there are no tuples; that is no other machine."""
    (name,) = await case.grow()
    cluster.join(name, labels={"cni": "x"})
    await case.turns(2)
    learned = dict(case.engine.fleet.learned)
    await case.engine.close()
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP), cluster=cluster, clock=case.clock) as again:
        assert (await again.provider.template("g")).labels["cni"] == "x"
        await again.turns(3)
        assert [r.facts for r in again.engine.fleet.learned.values()] == [r.facts for r in learned.values()]


async def test_nothing_is_written_while_nothing_new_is_learned(case: Case, cluster: MemoryCluster) -> None:
    names = await case.grow(3)
    cluster.join(*names)
    await case.turns(2)
    (record,) = case.engine.fleet.learned.values()
    await case.turns(5)
    assert case.engine.fleet.learned["g"] is record


async def test_what_cannot_be_read_is_learned_again(case: Case, cluster: MemoryCluster) -> None:
    (name,) = await case.grow()
    cluster.join(name, labels={"cni": "x"})
    await case.turns(2)
    broken = replace(case.engine.fleet.learned["g"], facts={"labels": 5})
    await case.engine.writer.write(lambda: Change(learned=[broken]))
    await case.engine.refresh()
    assert (await case.provider.template("g")).labels == {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    await case.turns(2)
    await case.engine.refresh()
    assert (await case.provider.template("g")).labels == {"cni": "x"}


async def test_what_was_learned_goes_with_its_group(case: Case, cluster: MemoryCluster, cloud: Cloud) -> None:
    (name,) = await case.grow()
    cluster.join(name)
    await case.turns(2)
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(4)
    case.engine.reconfigure(desired_state({"a": cloud}, group("other")))
    await case.engine.refresh()
    assert case.engine.fleet.learned == {}
    assert (await case.engine.journal.load()).learned == []


# -- drift -------------------------------------------------------------------------------------------------------------


async def test_nodes_that_are_not_as_promised_are_told_of_once(
    case: Case, cluster: MemoryCluster, cloud: Cloud
) -> None:
    declared = replace(TEMPLATE, labels={"pool": "lab", "zone": "a"}, taints=(Taint(key="dedicated"),))
    case.engine.reconfigure(desired_state({"a": cloud}, replace(GROUP, template=declared)))
    await case.engine.refresh()
    names = await case.grow(2)
    cluster.join(*names, labels={"pool": "other"}, taints=(Taint(key="late"),))
    await case.turns(10, 60)
    assert await case.events("drift") == [], "the next Refresh may put it right"
    await case.engine.refresh()
    await case.turns(10, 60)
    told = await case.events("drift")
    assert len(told) == 5
    assert f"the label pool=lab is promised, and 2 of 2 nodes (such as {names[0]}) have pool=other" in "\n".join(told)
    assert "the label zone=a is promised" in "\n".join(told)
    assert "the taint dedicated:NoSchedule is promised" in "\n".join(told)
    assert "4 of cpu is promised, and 2 of 2 nodes" in "\n".join(told)
    assert "8092Mi of memory is promised" in "\n".join(told)
    report = (await make_report(case.engine)).groups[0]
    assert len(report.drift) == 5
    assert all(one.todo for one in report.drift)
    reasons = (await explain(case.engine, "g")).reasons
    assert sum("its nodes are not as promised" in reason.what and bool(reason.todo) for reason in reasons) == 5


async def test_nodes_that_are_as_promised_are_not_told_of(case: Case, cluster: MemoryCluster) -> None:
    names = await case.grow(2)
    cluster.join(*names, allocatable={**ALLOCATABLE, "memory": Quantity("8Gi"), "cpu": Quantity("4")})
    await case.turns(20, 60)
    await case.engine.refresh()
    await case.turns(5, 60)
    assert await case.events("drift") == []
    assert (await make_report(case.engine)).groups[0].drift == []


async def test_what_was_just_learned_is_no_drift(case: Case, cluster: MemoryCluster, cloud: Cloud) -> None:
    """A shape that promises too much is put right by the next Refresh; nobody has to do anything."""
    taint = Taint(key="dedicated")
    names = await case.grow(2)
    cluster.join(*names, taints=(taint,), allocatable={**ALLOCATABLE, "memory": Quantity("8Gi"), "cpu": Quantity("4")})
    await case.turns(1)
    await case.engine.refresh()
    await case.turns(20, 60)
    assert await case.events("drift") == []
