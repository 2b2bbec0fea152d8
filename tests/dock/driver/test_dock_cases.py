"""The bridge's cases of the list of failures: the engine on a journal, the hub, a driver that dials in, its cloud.

Cases 41, 43, 47 and 48 are read in the light of the contract: a decrease always answers OK (R62), there is no check of
the minimum in DeleteNodes (R38, R58), and a driver that is away shows as creating with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import CloudgraftError, ErrorClass
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.service.cloud_provider import Call, CloudProviderService
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Presence, State
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.dock.driver.dock_rig import DockRig, docked
from tests.engine.engine_rig import creating, fake, group, real
from tests.engine.scripted_cloud import TEMPLATE, Cloud

GROUPS = (group("g", min_size=1), group("h"))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DockRig]:
    async with docked(DockRig(tmp_path, groups=GROUPS)) as made:
        yield made


async def grown(rig: DockRig, count: int, id_: str = "g") -> list[str]:
    """Machines that run; their providerIDs."""
    await rig.provider.increase_size(id_, count)
    await rig.settle(6)
    shown = await rig.shown(id_)
    assert {instance.state for instance in shown} == {InstanceState.RUNNING}
    return [instance.id for instance in shown]


async def increased(front: CloudProviderService, delta: int) -> None:
    """As the autoscaler asks for it."""
    await front.handle("NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id="g", delta=delta), Call())


def never_two(rig: DockRig) -> None:
    """Law 3, by the cloud's own ledger: no name was ever made twice."""
    names = [entry.name for entry in rig.cloud.ledger()]
    assert len(names) == len(set(names)), names


# -- 35: another leader ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("idempotency", Idempotency, ids=lambda one: one.value)
async def test_case_35_the_next_leader_settles_what_the_last_one_had_in_flight(
    tmp_path: Path, how: str, idempotency: Idempotency
) -> None:
    options = SimulatedOptions(boot_time=timedelta(seconds=30), idempotency=idempotency)
    async with docked(DockRig(tmp_path, options=options)) as rig:
        await rig.provider.increase_size("g", 1)
        rig.line.cut[Verb.CREATE] = how
        await rig.turn()
        assert [record.presence for record in rig.records()] == [Presence.UNKNOWN]
        before = await rig.shown()
        await rig.crash()  # and another engine takes over, on the same journal, at the same dock
        await rig.start()
        found = await rig.provider.node_group_for_node(fake(before[0]))
        assert found is not None, "the placeholder stays an alias of the machine"
        await rig.settle(20)
        assert (await rig.states(), len(rig.alive())) == (["running"], 1)
        never_two(rig)


# -- 41: away ----------------------------------------------------------------------------------------------------------


async def test_case_41_with_its_driver_away_a_group_answers_from_the_journal(rig: DockRig) -> None:
    """R12, R28, R42: no read fails, and no target falls because a driver is away."""
    ids = await grown(rig, 3)
    groups = await rig.provider.node_groups()
    rig.line.is_here = False
    await rig.settle(20)
    await rig.provider.refresh()
    assert await rig.provider.node_groups() == groups
    assert await rig.provider.target_size("g") == 3
    assert [(i.id, i.state) for i in await rig.shown()] == [(id_, InstanceState.RUNNING) for id_ in ids]
    assert (await rig.provider.template("g")).capacity
    rig.line.is_here = True
    await rig.settle(3)
    assert len(rig.alive()) == 3


async def test_case_41_what_is_asked_of_a_driver_that_is_away_shows_as_creating_with_an_error(rig: DockRig) -> None:
    """R39, law 7: IncreaseSize answers OK, and the autoscaler sees within a loop or two that it had better go on."""
    await grown(rig, 1)
    rig.line.is_here = False
    await rig.settle(3)
    await rig.provider.increase_size("g", 2)
    await rig.settle(2)
    new = creating(await rig.shown())
    assert len(new) == 2
    assert {instance.error.code for instance in new if instance.error} == {"unavailable"}
    assert await rig.provider.target_size("g") == 3
    await rig.provider.delete_nodes("g", [fake(instance, "create-error") for instance in new])
    rig.line.is_here = True
    await rig.settle(10)
    assert (await rig.provider.target_size("g"), len(rig.alive())) == (1, 1)
    assert len(rig.cloud.ledger()) == 1, "what was given up is not made when the driver is back"


async def test_case_41_with_its_driver_away_at_a_restart_a_group_answers_from_the_journal(rig: DockRig) -> None:
    """R12: it is listed from the first answer on, and nothing is created before the driver was heard."""
    ids = await grown(rig, 2)
    rig.line.is_here = False
    await rig.line.set()
    await rig.restart()
    assert {found.id for found in await rig.provider.node_groups()} == {"g", "h"}
    assert [instance.id for instance in await rig.shown()] == ids
    await rig.provider.increase_size("g", 1)
    await rig.settle(2)
    (new,) = creating(await rig.shown())
    assert new.error is not None
    assert new.error.code == "unavailable"
    await rig.provider.delete_nodes("g", [fake(new, "create-error")])
    rig.line.is_here = True
    await rig.settle(5)
    assert (await rig.provider.target_size("g"), len(rig.cloud.ledger())) == (2, 2)


async def test_case_41_a_driver_that_has_never_been_there_breaks_no_other_cloud(tmp_path: Path) -> None:
    """Law 6."""
    groups = (group("g"), group("other", cloud="other", machine={}, template=TEMPLATE))
    unheard = DockRig(tmp_path, groups=groups, drivers={"other": Cloud()})
    unheard.line.is_here = False
    async with docked(unheard) as rig:
        await rig.settle(13)  # a start waits two minutes for a cloud that was never listed
        assert [found.id for found in await rig.provider.node_groups()] == ["other"]
        assert "sim" in rig.engine.left_out()["g"], "and that is told"
        await rig.provider.increase_size("other", 2)
        await rig.settle(3)
        assert await rig.states("other") == ["running", "running"]
        rig.line.is_here = True  # and now it comes
        await rig.settle(2)
        await rig.provider.refresh()
        await grown(rig, 1)


# -- 42: crashes -------------------------------------------------------------------------------------------------------


async def test_case_42_a_crash_between_the_journal_and_the_call(rig: DockRig) -> None:
    """Law 2: the intent is on disk, and is carried out by the next process."""
    await rig.provider.increase_size("g", 2)
    names = {record.name for record in rig.records()}
    await rig.crash()
    await rig.start()
    await rig.settle(8)
    assert set(rig.alive()) == names
    never_two(rig)


@pytest.mark.parametrize("declares", [True, False], ids=["v1", "2018"])
async def test_case_42_a_crash_between_the_machine_and_its_record(tmp_path: Path, declares: bool) -> None:
    shape = "small" if declares else "m1"  # in 2018 a driver is not told, and the machine class says it
    async with docked(DockRig(tmp_path, groups=(group(machine={"shape": shape}),), declares=declares)) as rig:
        await rig.settle(2)
        await rig.provider.increase_size("g", 1)
        rig.line.cut[Verb.CREATE] = "after"
        await rig.turn()
        (name,) = (record.name for record in rig.records(State.CREATING))
        assert rig.alive() == [name]
        await rig.crash()
        await rig.start()
        await rig.settle(8)
        assert (rig.alive(), await rig.states()) == ([name], ["running"])
        never_two(rig)


# -- 43 to 46: deleting ------------------------------------------------------------------------------------------------


async def test_case_43_a_quota_is_class_1_and_the_target_falls_once(rig: DockRig) -> None:
    """R34, R35, R38: the autoscaler deletes the placeholder, also below the minimum, and more than once."""
    rig.line.codes[Verb.CREATE] = Code.RESOURCE_EXHAUSTED
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    (shown,) = await rig.shown()
    assert shown.state is InstanceState.CREATING
    assert shown.error is not None
    assert (shown.error.error_class, shown.error.code) == (ErrorClass.OUT_OF_RESOURCES, "out_of_stock")
    for _ in range(3):
        await rig.provider.delete_nodes("g", [fake(shown, "create-error")])
        assert await rig.provider.target_size("g") == 0
    await rig.settle(3)
    assert (await rig.shown(), rig.cloud.ledger()) == ([], [])


async def test_case_44_a_deletion_that_is_repeated_counts_once(rig: DockRig) -> None:
    """R49."""
    ids = await grown(rig, 3)
    nodes = [NodeRef(name=f"node-{id_}", provider_id=id_) for id_ in ids[:2]]
    for _ in range(3):
        await rig.provider.delete_nodes("g", nodes)
        assert await rig.provider.target_size("g") == 1
        await rig.turn(1)
    await rig.settle(5)
    assert len(rig.alive()) == 1
    assert rig.line.verbs.count(Verb.DELETE) == 2


@pytest.mark.parametrize("cut", ["", "before", "after"])
async def test_case_45_a_machine_that_is_deleted_while_it_is_created(rig: DockRig, cut: str) -> None:
    await rig.provider.increase_size("g", 1)
    if cut:
        rig.line.cut[Verb.CREATE] = cut
    await rig.turn()
    (shown,) = await rig.shown()
    assert shown.state is InstanceState.CREATING
    await rig.provider.delete_nodes("g", [fake(shown)])
    assert await rig.provider.target_size("g") == 0
    await rig.settle(20)
    assert (rig.alive(), await rig.shown()) == ([], []), "nothing is left behind"
    never_two(rig)


async def test_case_46_nodes_of_two_groups_in_one_call_change_nothing(rig: DockRig) -> None:
    """R52."""
    (of_g,), (of_h,) = await grown(rig, 1, "g"), await grown(rig, 1, "h")
    nodes = [NodeRef(name="a", provider_id=of_g), NodeRef(name="b", provider_id=of_h)]
    with pytest.raises(CloudgraftError):
        await rig.provider.delete_nodes("g", nodes)
    await rig.settle(3)
    assert (await rig.provider.target_size("g"), await rig.provider.target_size("h")) == (1, 1)
    assert Verb.DELETE not in rig.line.verbs


# -- 47 to 50: sizes ---------------------------------------------------------------------------------------------------


async def test_case_47_a_decrease_with_all_machines_real_is_ok_and_takes_none(rig: DockRig) -> None:
    """R62: it always answers OK, and cancels only what was never asked for."""
    await grown(rig, 3)
    await rig.provider.decrease_target_size("g", -2)
    await rig.settle(3)
    assert (await rig.provider.target_size("g"), len(rig.alive())) == (3, 3)
    rig.line.is_here = False
    await rig.turn(10)
    await rig.provider.increase_size("h", 2)
    await rig.provider.decrease_target_size("h", -2)
    assert await rig.provider.target_size("h") == 0, "these were never asked for"


async def test_case_48_the_maximum_is_a_limit_and_the_minimum_is_none(rig: DockRig) -> None:
    """R38, R58: below the minimum the autoscaler knows what it does."""
    with pytest.raises(CloudgraftError):
        await increased(CloudProviderService(rig.provider), 11)
    assert await rig.provider.target_size("g") == 0
    ids = await grown(rig, 1)
    await rig.provider.delete_nodes("g", [NodeRef(name="n", provider_id=ids[0])])
    await rig.settle(3)
    assert (await rig.provider.target_size("g"), rig.alive()) == (0, [])


async def test_case_49_a_machine_that_somebody_deleted_by_hand_is_gone(rig: DockRig) -> None:
    """Law 5: after two complete lists without it, and not because a driver was away or a list failed."""
    await grown(rig, 2)
    victim = rig.records()[0]
    rig.cloud.delete(victim.machine_id)
    rig.line.codes[Verb.LIST] = Code.NOT_FOUND
    await rig.settle(5)
    assert await rig.provider.target_size("g") == 2, "a list that failed is not an empty one"
    rig.line.codes.clear()
    await rig.settle(5)
    assert await rig.provider.target_size("g") == 1
    assert victim.name not in rig.alive()


async def test_case_50_a_machine_that_never_registers_is_deleted_like_any_other(rig: DockRig) -> None:
    """R50: after maxNodeProvisionTime the autoscaler deletes it, by a node that it made up."""
    await grown(rig, 2)
    shown = await rig.shown()
    await rig.settle(100)
    await rig.provider.delete_nodes("g", [fake(shown[0], "unregistered")])
    await rig.settle(5)
    assert (await rig.provider.target_size("g"), len(rig.alive())) == (1, 1)
    found = await rig.provider.node_group_for_node(real(shown[1]))
    assert found is not None
    assert found.id == "g"


# -- 51 to 53 ----------------------------------------------------------------------------------------------------------


async def test_case_51_a_machine_whose_create_is_in_flight_is_no_orphan(tmp_path: Path) -> None:
    """With orphans to be deleted at once: a list that is quicker than the answer of create deletes nothing."""
    settings = replace(EngineSettings(), delete_orphans=True)
    async with docked(DockRig(tmp_path, settings=settings)) as rig:
        await rig.settle(3)
        for how in ("after", "before", "after"):
            rig.line.cut[Verb.CREATE] = how
            await rig.provider.increase_size("g", 1)
            await rig.settle(10)
        assert await rig.states() == ["running"] * 3
        assert Verb.DELETE not in rig.line.verbs
        never_two(rig)


async def test_case_52_of_two_machines_with_one_name_one_is_kept(tmp_path: Path) -> None:
    """Law 3: the cloud refuses to say which (OUT_OF_RANGE), and a list shows both."""
    options = SimulatedOptions(boot_time=timedelta(seconds=30), idempotency=Idempotency.NONE)
    async with docked(DockRig(tmp_path, options=options)) as rig:
        await rig.provider.increase_size("g", 1)
        record = rig.records()[0]
        rig.place(record.name, record.tags)
        rig.clock.advance(1)
        rig.place(record.name, record.tags)
        rig.line.codes[Verb.CREATE] = Code.OUT_OF_RANGE
        await rig.settle(20)
        assert (await rig.states(), len(rig.alive())) == (["running"], 1)
        assert [event.kind for event in await rig.events("double")] == ["double"]


async def test_case_53_an_increase_whose_caller_gave_up_counts_and_a_second_one_stays_below_the_maximum(
    rig: DockRig,
) -> None:
    """Law 1 makes it rare; when it happens, the target says what was taken on."""
    front = CloudProviderService(rig.provider)
    given_up = asyncio.create_task(increased(front, 3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await increased(front, 3)  # it waits for the first, which had begun
    assert await rig.provider.target_size("g") == 6, "what was taken on counts, whoever waits for it"
    with pytest.raises(CloudgraftError):
        await increased(front, 5)
    await front.close(5)
    await rig.settle(8)
    assert (await rig.provider.target_size("g"), len(rig.alive())) == (6, 6)
    never_two(rig)
