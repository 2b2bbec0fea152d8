"""NodeGroupForNode: R16 to R24, T2 and T8. Which group a node is of, also when it is not a node at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import AutoscalingOptions, InstanceState, NodeRef
from cloudgraft.store.records import State
from tests.engine.engine_rig import Rig, fake, group, real, running

MINUTE = 60.0


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(group("g"), group("h", max_size=7)))) as made:
        yield made


async def group_of(rig: Rig, node: NodeRef) -> str:
    found = await rig.provider.node_group_for_node(node)
    return found.id if found is not None else ""


async def test_r16_r19_made_up_nodes_of_every_instance_map_to_their_group(rig: Rig) -> None:
    """Requested, creating, failed and running alike, with each of the reasons for which a node is made up."""
    rig.chaos(stock={"small": 2})
    await rig.provider.increase_size("g", 3)
    await rig.provider.increase_size("h", 1)
    for turns in (0, 1, 5):
        await rig.settle(turns)
        for id_ in ("g", "h"):
            for instance in await rig.shown(id_):
                for reason in ("unregistered", "create-error", ""):
                    assert await group_of(rig, fake(instance, reason)) == id_


async def test_r17_t8_nodes_that_are_not_ours_are_of_no_group_and_no_error(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    for node in (
        NodeRef(name="control-plane", provider_id="sim://control-plane"),
        NodeRef(name="control-plane"),
        NodeRef(name="template-node-for-g-123-upcoming-0", labels={"pool": "g"}),
        NodeRef(name="template-node-for-g-123-upcoming-0", provider_id=""),
        NodeRef(),
    ):
        assert await rig.provider.node_group_for_node(node) is None


async def test_r18_r23_the_answer_is_one_of_the_listed_groups_with_the_same_sizes(rig: Rig) -> None:
    await rig.provider.increase_size("h", 1)
    found = await rig.provider.node_group_for_node(fake((await rig.shown("h"))[0]))
    assert found in await rig.provider.node_groups()
    assert found is not None
    assert (found.min_size, found.max_size) == (0, 7)


async def test_law_5_a_placeholder_stays_an_alias_for_life(rig: Rig) -> None:
    """Also after the providerID is known, after a restart, while it is deleted, and when it is gone."""
    await rig.provider.increase_size("g", 1)
    placeholder = (await rig.shown())[0]
    assert placeholder.id.startswith("cloudgraft://")
    await rig.settle(5)
    known = (await rig.shown())[0]
    assert known.id.startswith("simulated://")
    await rig.restart()
    for node in (fake(placeholder), real(known), NodeRef(name=rig.records()[0].name)):
        assert await group_of(rig, node) == "g"
    await rig.provider.delete_nodes("g", [fake(placeholder)])
    assert [i.state for i in await rig.shown()] == [InstanceState.DELETING]
    for turns in (0, 5):
        await rig.settle(turns)
        assert await group_of(rig, fake(placeholder)) == "g"
        assert await group_of(rig, real(known)) == "g"
    assert await rig.shown() == []


async def test_r22_a_fresh_node_without_a_provider_id_is_found_by_its_name(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    name = rig.records()[0].name
    assert await group_of(rig, NodeRef(name=name)) == "g"
    assert await group_of(rig, NodeRef(name=name, provider_id="other://machine")) == ""


async def test_r24_a_gone_machine_maps_to_its_group_for_half_an_hour(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    instance = (await rig.shown())[0]
    await rig.provider.delete_nodes("g", [real(instance)])
    await rig.settle(5)
    gone = rig.records(State.GONE)[0]
    assert gone.gone_at is not None
    rig.clock.time = gone.gone_at + 30 * MINUTE
    assert await group_of(rig, real(instance)) == "g"
    rig.clock.advance(1)
    assert await group_of(rig, real(instance)) == ""
    assert await group_of(rig, fake(instance)) == ""


async def test_r24_how_long_can_be_set(tmp_path: Path) -> None:
    settings = EngineSettings(node_memory=timedelta(seconds=90))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        await rig.provider.increase_size("g", 1)
        await rig.settle(5)
        instance = (await rig.shown())[0]
        rig.cloud.vanish(rig.records()[0].machine_id)
        await rig.settle(3)
        assert await rig.shown() == []
        assert await group_of(rig, real(instance)) == "g"
        rig.clock.advance(91)
        assert await group_of(rig, real(instance)) == ""


async def test_t2_registration_changes_nothing(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    before = await rig.shown()
    for instance in before:
        assert await group_of(rig, real(instance)) == "g"
    await rig.provider.refresh()
    assert await rig.shown() == before
    assert await rig.provider.target_size("g") == 2


async def test_t8_unknown_groups_are_an_error_for_every_call_that_names_one(rig: Rig) -> None:
    provider = rig.provider
    for call in (
        provider.target_size("nope"),
        provider.instances("nope"),
        provider.template("nope"),
        provider.options("nope", AutoscalingOptions()),
        provider.increase_size("nope", 1),
        provider.decrease_target_size("nope", -1),
        provider.delete_nodes("nope", [NodeRef(name="x")]),
    ):
        with pytest.raises(NotFoundError, match="nope"):
            await call


async def test_r3_r13_every_listed_group_answers_everything_before_the_first_refresh(rig: Rig) -> None:
    for listed in await rig.provider.node_groups():
        assert await rig.provider.target_size(listed.id) == 0
        assert list(await rig.provider.instances(listed.id)) == []
        assert (await rig.provider.template(listed.id)).allocatable
        assert await rig.provider.options(listed.id, AutoscalingOptions()) is None
