"""NodeGroupDeleteNodes: R49 to R58, T3 and T6; and deletion while a machine is still being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.operations.adoption import adopt
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import Instance, InstanceState, NodeRef
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Change, State
from tests.engine.engine_rig import Rig, fake, group, real, running


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    groups = (group("g", min_size=1), group("h"))
    async with running(Rig(tmp_path, groups=groups)) as made:
        yield made


async def grown(rig: Rig, count: int, id_: str = "g") -> list[Instance]:
    await rig.provider.increase_size(id_, count)
    await rig.settle(5)
    return await rig.shown(id_)


async def states(rig: Rig, id_: str = "g") -> dict[str, InstanceState]:
    return {instance.id: instance.state for instance in await rig.shown(id_)}


async def test_t6_r49_ten_at_once_fall_by_ten_and_again_by_none(rig: Rig) -> None:
    instances = await grown(rig, 10)
    for _ in range(2):
        await asyncio.gather(*(rig.provider.delete_nodes("g", [real(i)]) for i in instances))
        assert await rig.provider.target_size("g") == 0
        assert set((await states(rig)).values()) == {InstanceState.DELETING}
    await rig.settle(5)
    assert rig.alive() == []
    assert await rig.shown() == []
    for instance in instances:  # R55, R56: it is gone, and its node is still there
        await rig.provider.delete_nodes("g", [real(instance)])
    assert await rig.provider.target_size("g") == 0


async def test_r49_one_call_with_many_nodes_and_the_same_one_twice(rig: Rig) -> None:
    instances = await grown(rig, 4)
    await rig.provider.delete_nodes("g", [real(instances[0]), fake(instances[0]), real(instances[1])])
    assert await rig.provider.target_size("g") == 2


async def test_t6_r52_a_foreign_node_is_an_error_and_nothing_at_all_is_done(rig: Rig) -> None:
    instances, others = await grown(rig, 2), await grown(rig, 1, "h")
    before = await states(rig)
    for foreign in (
        NodeRef(name="control-plane", provider_id="sim://control-plane"),
        NodeRef(name="nobody"),
        real(others[0]),
        NodeRef(name=rig.engine.fleet.find(real(instances[0])).name, provider_id="other://1"),  # type: ignore[union-attr]  # it is there
    ):
        for nodes in ([foreign], [real(instances[0]), foreign], [foreign, real(instances[0])]):
            with pytest.raises(InvalidArgumentError, match="nothing was deleted"):
                await rig.provider.delete_nodes("g", nodes)
            assert await states(rig) == before
            assert await rig.provider.target_size("g") == 2
    await rig.settle(5)
    assert len(rig.alive()) == 3


async def test_t3_r38_r58_failed_machines_go_also_below_the_minimum_and_twice(rig: Rig) -> None:
    await grown(rig, 1)
    rig.chaos(quota=1)
    await rig.provider.increase_size("g", 2)
    await rig.turn()
    failed = [i for i in await rig.shown() if i.error]
    assert len(failed) == 2
    for _ in range(2):
        await rig.provider.delete_nodes("g", [fake(i, "create-error") for i in failed])
        assert await rig.provider.target_size("g") == 1
        assert not any(i.error for i in await rig.shown())
    await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
    assert await rig.provider.target_size("g") == 0, "R58: the minimum is the autoscaler's business"
    await rig.settle(30)
    assert rig.alive() == [], "R53: what was deleted is never replaced"
    assert await rig.provider.target_size("g") == 0


async def test_r50_r51_all_instances_of_a_group_as_made_up_nodes(rig: Rig) -> None:
    await grown(rig, 2)
    await rig.provider.increase_size("g", 2)
    await rig.provider.delete_nodes("g", [fake(i, "") for i in await rig.shown()])
    assert await rig.provider.target_size("g") == 0
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])


async def test_r33_deleting_is_shown_until_the_machine_is_gone(rig: Rig) -> None:
    instance = (await grown(rig, 1))[0]
    rig.chaos(deleteTime=100)
    await rig.provider.delete_nodes("g", [real(instance)])
    for _ in range(9):
        assert await states(rig) == {instance.id: InstanceState.DELETING}
        await rig.turn(10)
    await rig.settle(5)
    assert await states(rig) == {}


async def test_r54_a_deletion_goes_on_until_it_is_done_whatever_the_cloud_answers(rig: Rig) -> None:
    instance = (await grown(rig, 1))[0]
    rig.chaos(delete={"errors": 1})
    await rig.provider.delete_nodes("g", [real(instance)])
    await rig.settle(10)
    assert len(rig.alive()) == 1
    rig.chaos(delete={"lost": 1})
    await rig.settle(15)
    assert rig.alive() == []
    assert await states(rig) == {}


async def test_r56_a_machine_that_vanished_can_be_deleted_and_lowers_the_target_only_while_it_counts(rig: Rig) -> None:
    instances = await grown(rig, 3)
    for record in rig.records(State.RUNNING)[:2]:
        rig.cloud.vanish(record.machine_id)
    await rig.provider.delete_nodes("g", [real(i) for i in instances])
    assert await rig.provider.target_size("g") == 0
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])


# -- while it is being made --------------------------------------------------------------------------------------------


async def test_what_was_never_sent_is_gone_at_once_and_never_made(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
    assert await rig.shown() == []
    await rig.settle(5)
    assert rig.cloud.calls().get("create", 0) == 0


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_what_boots_is_made_and_then_removed(rig: Rig, turns: int) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(turns)
    await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])
    assert len(rig.cloud.ledger()) == 2


async def test_a_deletion_while_the_call_is_in_flight_waits_for_its_answer_and_leaks_nothing(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    record = rig.records()[0]
    asked = asyncio.Event()
    answer = asyncio.Event()
    caller = rig.engine.workers["sim"].caller
    create = caller._driver.create

    async def slow_create(spec: object) -> object:
        asked.set()
        await answer.wait()
        return await create(spec)  # type: ignore[arg-type]  # what it was called with

    caller._driver.create = slow_create  # type: ignore[method-assign,assignment]  # one call, held up
    turning = asyncio.create_task(rig.turn())
    await asked.wait()
    await rig.provider.delete_nodes("g", [fake((await rig.shown())[0])])
    assert [i.state for i in await rig.shown()] == [InstanceState.DELETING]
    answer.set()
    await turning
    assert rig.cloud.ledger()[0].name == record.name
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])


@pytest.mark.parametrize("lag", [0, 25])
@pytest.mark.parametrize("idempotency", list(Idempotency))
@pytest.mark.parametrize("fault", ["lost", "dropped", "late", "errors", "errorsAfter"])
async def test_a_deletion_after_a_lost_answer_waits_for_the_list_and_leaks_nothing(
    tmp_path: Path, fault: str, idempotency: Idempotency, lag: int
) -> None:
    options = SimulatedOptions(
        boot_time=timedelta(seconds=30),
        delete_time=timedelta(seconds=5),
        idempotency=idempotency,
        list_lag=timedelta(seconds=lag),
    )
    async with running(Rig(tmp_path, options=options)) as rig:
        await rig.settle(lag // 10 + 1)
        await rig.provider.refresh()
        rig.chaos(create={fault: {"next": 2}}, lateBy=12)
        await rig.provider.increase_size("g", 2)
        await rig.turn()
        await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
        assert await rig.provider.target_size("g") == 0
        await rig.settle(20)
        assert (await rig.shown(), rig.alive()) == ([], [])
        assert rig.cloud.calls()["create"] == 2, "what is not wanted is not made again"


async def test_a_deletion_before_a_lagging_list_shows_the_machine_is_made_by_its_id(tmp_path: Path) -> None:
    options = SimulatedOptions(list_lag=timedelta(seconds=60), delete_time=timedelta(seconds=1))
    async with running(Rig(tmp_path, options=options)) as rig:
        await rig.settle(7)
        await rig.provider.refresh()
        await rig.provider.increase_size("g", 1)
        await rig.turn()
        assert len(rig.alive()) == 1
        await rig.provider.delete_nodes("g", [fake((await rig.shown())[0])])
        await rig.turn()
        assert rig.alive() == [], "the answer to our own create is proof enough"
        await rig.settle(20)
        assert await rig.shown() == []
        assert rig.cloud.ledger()[0].deletes == 1, "what may be gone is not deleted again without being seen"


async def test_what_an_operator_is_just_taking_back_is_not_deleted(rig: Rig) -> None:
    """A machine returned, and its adoption is being written while the worker is about to delete it."""
    instance = (await grown(rig, 1))[0]
    (record,) = rig.records()
    await rig.provider.delete_nodes("g", [real(instance)])
    await rig.settle(5)
    returned = rig.place(record.name, record.tags)
    worker = rig.engine.workers["sim"]
    rig.clock.advance(60)
    await worker.observe()
    written, gate = rig.engine.journal.write, asyncio.Event()
    begun = asyncio.Event()

    async def slow_write(change: Change) -> None:
        if change.machines:
            begun.set()
            await gate.wait()
        await written(change)

    rig.engine.journal.write = slow_write  # type: ignore[method-assign]  # one write, held up
    adopting = asyncio.create_task(adopt(rig.engine, "g", [returned], is_dry_run=False))
    await begun.wait()
    acting = asyncio.create_task(worker.act())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(adopting, acting)
    await rig.settle(5)
    assert rig.alive() == [record.name]
    assert await rig.states() == ["running"]
    assert rig.cloud.ledger()[-1].deletes == 0
