"""Law 3 and law 7 under a cloud that refuses, fails, is late, or loses its answers: one machine per intent."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.sdk.types import InstanceState
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Presence, State
from tests.engine.engine_rig import Rig, fake, group, real, running


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(group("g"), group("h", machine={"shape": "medium"})))) as made:
        yield made


def options(idempotency: Idempotency = Idempotency.TOKEN, lag: float = 0) -> SimulatedOptions:
    return SimulatedOptions(
        boot_time=timedelta(seconds=30),
        delete_time=timedelta(seconds=5),
        idempotency=idempotency,
        list_lag=timedelta(seconds=lag),
    )


async def ready(rig: Rig) -> None:
    """Until a cloud with a lag was listed for long enough to be adopted."""
    await rig.settle(8)
    await rig.provider.refresh()


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_call_that_will_be_made_again_is_told_with_its_kind(rig: Rig) -> None:
    rig.chaos(create={"rateLimits": 1})
    await rig.provider.increase_size("g", 1)
    await rig.settle(1)
    rig.chaos()
    await rig.settle()
    (instance,) = await rig.shown()
    rig.chaos(delete={"rateLimits": 1})
    await rig.provider.delete_nodes("g", [real(instance)])
    await rig.settle(1)
    calls = [event.data["call"] for event in await rig.events("retry")]
    assert list(dict.fromkeys(calls)) == ["create", "delete"]


async def test_a_stock_out_in_the_middle_of_plus_ten_is_partial_and_told_in_one_loop(rig: Rig) -> None:
    rig.chaos(stock={"small": 4})
    await rig.provider.increase_size("g", 10)
    await rig.turn()
    shown = await rig.shown()
    assert Counter(bool(i.error) for i in shown) == {False: 4, True: 6}
    assert {i.error.code for i in shown if i.error} == {"out_of_stock"}
    assert rig.cloud.calls()["create"] <= 8, "those that had not been sent were not sent in vain"
    await rig.provider.delete_nodes("g", [fake(i, "create-error") for i in shown if i.error])
    await rig.settle(5)
    assert await rig.provider.target_size("g") == 4
    assert len(rig.alive()) == 4
    # Another group of another shape is not concerned, and a later request of this one is tried.
    await rig.provider.increase_size("h", 1)
    rig.chaos()
    rig.clock.advance(1)
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert len(rig.alive()) == 6


async def test_a_quota_of_the_account_is_out_of_resources(rig: Rig) -> None:
    rig.chaos(quota=3)
    await rig.provider.increase_size("g", 5)
    await rig.settle(5)
    errors = [i.error for i in await rig.shown() if i.error]
    assert [(e.code, e.error_class) for e in errors] == [("quota_exceeded", ErrorClass.OUT_OF_RESOURCES)] * 2
    assert "3 machines" in errors[0].message


async def test_a_rate_limit_is_waited_for_as_long_as_the_cloud_asks(rig: Rig) -> None:
    rig.chaos(create={"rateLimits": {"next": 2}}, retryAfter=45)
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    assert rig.cloud.calls()["create"] == 1
    for _ in range(4):
        await rig.turn(10)
    assert rig.cloud.calls()["create"] == 1, "40 of the 45 seconds"
    await rig.turn(10)
    assert rig.cloud.calls()["create"] == 2
    await rig.settle(10)
    assert (await rig.states(), len(rig.alive())) == (["running"], 1)
    assert rig.records()[0].attempts == 3


async def test_a_cloud_that_says_nothing_was_done_is_asked_again_without_waiting_for_a_list(rig: Rig) -> None:
    rig.chaos(create={"unavailable": {"next": 3}})
    await rig.provider.increase_size("g", 2)
    await rig.settle(12)
    assert await rig.states() == ["running", "running"]
    assert len(rig.cloud.ledger()) == 2


# -- unknown outcomes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 25])
@pytest.mark.parametrize("idempotency", list(Idempotency))
@pytest.mark.parametrize("fault", ["lost", "dropped", "late", "errors", "errorsAfter"])
async def test_an_unknown_outcome_is_settled_by_list_and_no_machine_is_doubled(
    tmp_path: Path, fault: str, idempotency: Idempotency, lag: int
) -> None:
    async with running(Rig(tmp_path, options=options(idempotency, lag))) as rig:
        await ready(rig)
        rig.chaos(create={fault: {"next": 3}}, lateBy=20)
        await rig.provider.increase_size("g", 3)
        await rig.turn()
        assert {r.presence for r in rig.records()} == {Presence.UNKNOWN}
        await rig.settle(20)
        assert await rig.states() == ["running"] * 3
        assert len(rig.alive()) == 3
        assert len(rig.cloud.ledger()) == 3, "law 3: not even one that is deleted again"
        assert rig.cloud.calls().get("delete", 0) == 0


@pytest.mark.parametrize("idempotency", list(Idempotency))
async def test_nothing_is_created_again_before_two_lists_past_the_delay(
    tmp_path: Path, idempotency: Idempotency
) -> None:
    async with running(Rig(tmp_path, options=options(idempotency, 25))) as rig:
        await ready(rig)
        rig.chaos(create={"dropped": 1})
        await rig.provider.increase_size("g", 1)
        await rig.turn()
        sent_at = rig.clock.now()
        while rig.cloud.calls()["create"] == 1:
            await rig.turn(1)
        waited = rig.clock.now() - sent_at
        # Where a second call is not safe, the first gets all of its own time as well.
        assert waited >= 50 + (30 if idempotency is Idempotency.NONE else 0)
        assert waited < 100


@pytest.mark.parametrize("lag", [0, 25])
async def test_a_double_of_a_cloud_that_is_not_idempotent_is_removed_and_told(tmp_path: Path, lag: int) -> None:
    """The first order arrives so late that it had been given up for good reasons."""
    async with running(Rig(tmp_path, options=options(Idempotency.NONE, lag))) as rig:
        await ready(rig)
        rig.chaos(create={"late": {"next": 1}}, lateBy=400)
        await rig.provider.increase_size("g", 1)
        await rig.settle(30)
        (record,) = rig.records(State.RUNNING)
        shown = await rig.shown()
        await rig.settle(30)
        assert len(rig.cloud.ledger()) == 2
        assert [m.machine_id for m in rig.cloud.machines()] == [record.machine_id], "the one that ran is kept"
        assert await rig.shown() == shown
        (told,) = await rig.events("double")
        assert told.data["machine_id"] == rig.cloud.ledger()[1].machine_id


async def test_a_late_success_of_a_machine_that_was_deleted_meanwhile_is_removed_and_told(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, options=options(Idempotency.NONE))) as rig:
        await ready(rig)
        rig.chaos(create={"late": {"next": 1}}, lateBy=400)
        await rig.provider.increase_size("g", 1)
        await rig.turn()
        await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
        await rig.settle(20)
        assert await rig.shown() == []
        await rig.settle(30)
        assert len(rig.cloud.ledger()) == 1
        assert rig.alive() == []
        assert len(await rig.events("returned")) == 1
        assert await rig.provider.target_size("g") == 0


@pytest.mark.parametrize("idempotency", list(Idempotency))
async def test_a_lost_answer_and_a_restart_at_once(tmp_path: Path, idempotency: Idempotency) -> None:
    async with running(Rig(tmp_path, options=options(idempotency, 25))) as rig:
        await ready(rig)
        rig.chaos(create={"lost": {"next": 2}})
        await rig.provider.increase_size("g", 3)
        await rig.turn()
        await rig.crash()
        await rig.start()
        await rig.settle(20)
        assert await rig.states() == ["running"] * 3
        assert len(rig.cloud.ledger()) == 3


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_half_a_page_never_lowers_a_target(tmp_path: Path) -> None:
    cloud = SimulatedOptions(boot_time=timedelta(seconds=5), page_size=2)
    async with running(Rig(tmp_path, options=cloud)) as rig:
        await rig.provider.increase_size("g", 7)
        await rig.settle(3)
        before = await rig.shown()
        assert {i.state for i in before} == {InstanceState.RUNNING}
        rig.chaos(halfPages=1)
        for _ in range(10):
            await rig.turn(10)
            assert await rig.shown() == before
        rig.chaos(halfPages=0.5, seed=3)
        for _ in range(30):
            await rig.turn(10)
            assert await rig.shown() == before
        assert await rig.provider.target_size("g") == 7


async def test_one_list_that_leaves_machines_out_is_not_believed(rig: Rig) -> None:
    """Silently, which no count betrays: two such lists in a row would be needed."""
    await rig.provider.increase_size("g", 6)
    await rig.settle(5)
    for _ in range(4):
        rig.chaos(shortLists={"next": 1})
        await rig.turn(10)
        await rig.turn(10)
        assert await rig.provider.target_size("g") == 6
    assert await rig.states() == ["running"] * 6


@pytest.mark.parametrize("way", ["waits", "restart"])
async def test_machines_that_two_lists_left_out_are_taken_back_when_a_third_shows_them(rig: Rig, way: str) -> None:
    await rig.provider.increase_size("g", 4)
    await rig.settle(5)
    ids = {i.id for i in await rig.shown()}
    rig.chaos(shortLists=1)
    await rig.settle(3)
    left = await rig.provider.target_size("g")
    assert left == 2
    if way == "restart":
        await rig.restart()
    rig.chaos()
    await rig.settle(3)
    assert {i.id for i in await rig.shown()} == ids
    assert await rig.provider.target_size("g") == 4
    assert rig.cloud.calls().get("delete", 0) == 0


async def test_a_machine_that_was_deleted_while_no_list_showed_it_is_removed_when_one_does(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    before = await rig.shown()
    rig.chaos(shortLists=1)
    await rig.settle(3)
    (still,) = await rig.shown()
    (lost,) = (i for i in before if i.id != still.id)
    await rig.provider.delete_nodes("g", [fake(lost)])  # R56: its node is still there, for all the autoscaler knows
    assert await rig.provider.target_size("g") == 1
    rig.chaos()
    await rig.settle(5)
    assert await rig.shown() == [still]
    assert len(rig.alive()) == 1


async def test_a_list_that_fails_once_is_bad_luck_and_twice_a_cloud_that_is_down(rig: Rig) -> None:
    rig.chaos(list={"unavailable": {"next": 1}})
    await rig.turn(10)
    await rig.provider.increase_size("g", 1)
    assert not any(i.error for i in await rig.shown())
    await rig.settle(5)
    assert await rig.states() == ["running"]
    rig.chaos(list={"unavailable": {"next": 2}})
    await rig.settle(2)
    assert [e.kind for e in await rig.events("cloud_down", "cloud_up")] == ["cloud_down"]
    await rig.turn(10)
    assert [e.kind for e in await rig.events("cloud_down", "cloud_up")] == ["cloud_down", "cloud_up"]


async def test_a_cloud_that_hangs_settles_everything_when_it_no_longer_does(tmp_path: Path) -> None:
    """T7: calls that got no answer are carried out when the cloud wakes up."""
    for idempotency in Idempotency:
        directory = tmp_path / idempotency.value
        directory.mkdir()
        async with running(Rig(directory, options=options(idempotency))) as rig:
            await rig.provider.increase_size("g", 1)
            await rig.settle(5)
            rig.chaos(hang=60)
            await rig.provider.increase_size("g", 2)
            before = await rig.provider.target_size("g")
            await rig.settle(6)
            assert await rig.provider.target_size("g") == before == 3
            await rig.settle(30)
            running_ones = rig.records(State.RUNNING)
            assert sorted(r.name for r in running_ones) == rig.alive()
            assert len(set(rig.alive())) == len(rig.cloud.ledger())
