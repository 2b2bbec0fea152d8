"""The driver `simulated`, in process and over real sockets: the same cloud, the same faults, the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.sdk import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    Idempotency,
    InvalidArgumentError,
    Machine,
    MachineSpec,
    MachineState,
    OutOfStockError,
    Ownership,
    PreconditionError,
    ProviderIdBy,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conditions import until
from tests.simcloud.driver_setting import Setting
from tests.simcloud.sim_world import START, a_spec

Open = Callable[..., Any]


@pytest.fixture(params=["in process", "http"])
async def setting(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    opened: list[Setting] = []

    async def make(**options: Any) -> Setting:
        setting = Setting(request.param, **options)
        opened.append(setting)
        await setting.driver.start()
        return setting

    yield make
    for each in opened:
        await each.driver.close()
        await asyncio.to_thread(each.server.stop)
        each.cloud.close()


# -- what it does ------------------------------------------------------------------------------------------------------


async def test_a_machine_is_made_listed_and_deleted_with_its_tags_kept(setting: Open) -> None:
    world = await setting(boot_time=timedelta(seconds=5), delete_time=timedelta(seconds=5))
    tags = {"cloudgraft-cluster-id": "abc", "cloudgraft-group": "small"}
    made = await world.driver.create(a_spec(tags=tags))
    assert made == Machine(
        name="m-1",
        machine_id="cafe-000001",
        provider_id="simulated://cafe-000001",
        state=MachineState.PENDING,
        tags=tags,
        created_at=made.created_at,
    )
    assert made.created_at.timestamp() == START
    world.clock.pass_(5)
    [listed] = await world.driver.list()
    assert (listed.state, listed.tags) == (MachineState.RUNNING, tags)
    await world.driver.delete(listed)
    assert [machine.state for machine in await world.driver.list()] == [MachineState.DELETING]
    world.clock.pass_(5)
    assert list(await world.driver.list()) == []
    [entry] = world.cloud.ledger()
    assert (entry.token, entry.client, entry.deleted_by) == ("m-1", "me", "me")


async def test_all_settings_of_a_group_reach_the_machine(setting: Open) -> None:
    world = await setting()
    settings = {
        "shape": "gpu",
        "zone": "z",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
    }
    await world.driver.create(MachineSpec(name="m-1", group="g", settings=settings, user_data="secret"))
    [machine] = world.cloud.machines()
    assert machine.settings.to_json() == settings


async def test_the_name_is_the_token(setting: Open) -> None:
    world = await setting(idempotency=Idempotency.TOKEN)
    assert await world.driver.create(a_spec()) == await world.driver.create(a_spec())


async def test_a_unique_name_that_is_taken_is_reported(setting: Open) -> None:
    world = await setting(idempotency=Idempotency.UNIQUE_NAME)
    await world.driver.create(a_spec())
    with pytest.raises(AlreadyExistsError, match="m-1"):
        await world.driver.create(a_spec())


async def test_a_machine_that_is_gone_can_be_deleted_again(setting: Open) -> None:
    world = await setting()
    made = await world.driver.create(a_spec())
    await world.driver.delete(made)
    await world.driver.delete(made)
    await world.driver.delete(Machine(name="never", machine_id="never/was?"))


async def test_a_machine_without_an_id_cannot_be_deleted(setting: Open) -> None:
    world = await setting()
    with pytest.raises(InvalidArgumentError, match="no machine id"):
        await world.driver.delete(Machine(name="m-1", machine_id=""))


@pytest.mark.parametrize("page_size", [1, 3, 250])
async def test_a_list_reads_all_pages(setting: Open, page_size: int) -> None:
    world = await setting(page_size=page_size)
    names = [f"m-{number}" for number in range(7)]
    for name in names:
        await world.driver.create(a_spec(name))
    assert [machine.name for machine in await world.driver.list()] == names


async def test_half_a_page_is_an_error_and_never_an_answer(setting: Open) -> None:
    world = await setting(page_size=2)
    for number in range(5):
        await world.driver.create(a_spec(f"m-{number}"))
    for after in range(3):
        world.chaos(halfPages={"after": after, "next": 1})
        with pytest.raises(UnavailableError, match="not complete"):
            await world.driver.list()
    assert len(await world.driver.list()) == 5


async def test_shapes_and_prices_are_listed(setting: Open) -> None:
    world = await setting()
    assert list(await world.driver.shapes()) == world.cloud.shapes()
    assert list(await world.driver.prices()) == world.cloud.prices()


async def test_calls_at_the_same_time_are_fine(setting: Open) -> None:
    world = await setting(idempotency=Idempotency.TOKEN)
    specs = [a_spec(f"m-{number % 10}") for number in range(40)]
    made = await asyncio.gather(*(world.driver.create(spec) for spec in specs))
    assert len({machine.machine_id for machine in made}) == 10
    assert len(await world.driver.list()) == 10


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chaos", "error", "is_made"),
    [
        ({"quota": 0}, QuotaExceededError, False),
        ({"stock": {"small": 0}}, OutOfStockError, False),
        ({"create": {"rateLimits": 1}, "retryAfter": 2.5}, RateLimitedError, False),
        ({"create": {"unavailable": 1}}, UnavailableError, False),
        ({"create": {"errors": 1}}, DeadlineError, False),
        ({"create": {"errorsAfter": 1}}, DeadlineError, True),
        ({"create": {"dropped": 1}}, DeadlineError, False),
        ({"create": {"lost": 1}}, DeadlineError, True),
    ],
)
async def test_a_create_that_fails_says_what_may_have_been_done(
    setting: Open, chaos: dict[str, object], error: type[CloudgraftError], is_made: bool
) -> None:
    world = await setting()
    world.chaos(**chaos)
    with pytest.raises(error) as caught:
        await world.driver.create(a_spec())
    assert caught.value.slug == error.slug
    assert caught.value.retry_after == (2.5 if error is RateLimitedError else None)
    world.chaos()
    assert bool(await world.driver.list()) is is_made


@pytest.mark.parametrize(
    ("fault", "error", "is_done"),
    [
        ("rateLimits", RateLimitedError, False),
        ("unavailable", UnavailableError, False),
        ("errors", DeadlineError, False),
        ("errorsAfter", DeadlineError, True),
        ("dropped", DeadlineError, False),
        ("lost", DeadlineError, True),
    ],
)
async def test_a_delete_that_fails_says_what_may_have_been_done(
    setting: Open, fault: str, error: type[CloudgraftError], is_done: bool
) -> None:
    world = await setting()
    made = await world.driver.create(a_spec())
    world.chaos(delete={fault: {"next": 1}})
    with pytest.raises(error):
        await world.driver.delete(made)
    assert not await world.driver.list() if is_done else await world.driver.list()
    await world.driver.delete(made)
    assert not await world.driver.list()


@pytest.mark.parametrize("fault", ["rateLimits", "unavailable", "errors", "errorsAfter", "dropped", "lost"])
async def test_a_list_that_fails_is_an_error_and_the_next_one_works(setting: Open, fault: str) -> None:
    world = await setting()
    await world.driver.create(a_spec())
    world.chaos(list={fault: {"next": 1}})
    with pytest.raises((RateLimitedError, UnavailableError, DeadlineError)):
        await world.driver.list()
    assert len(await world.driver.list()) == 1


async def test_a_500_to_a_question_means_that_nothing_was_done(setting: Open) -> None:
    world = await setting()
    world.chaos(list={"errors": 1})
    with pytest.raises(UnavailableError):
        await world.driver.list()


@pytest.mark.parametrize(
    "spec",
    [
        MachineSpec(name="m-1", group="g", settings={}),
        MachineSpec(name="m-1", group="g", settings={"shape": "huge"}),
        MachineSpec(name="m-1", group="g", settings={"shape": "small", "color": "red"}),
        MachineSpec(name="m-1", group="g", settings={"shape": ["small"]}),
        MachineSpec(name="M 1", group="g", settings={"shape": "small"}),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(setting: Open, spec: MachineSpec) -> None:
    world = await setting()
    with pytest.raises(InvalidArgumentError):
        await world.driver.create(spec)
    assert world.cloud.ledger() == []


async def test_a_call_that_was_given_up_while_the_cloud_hung_is_carried_out_all_the_same(setting: Open) -> None:
    """Law 3: a timeout that in truth succeeded."""
    world = await setting()
    world.chaos(hang=True)
    create = asyncio.create_task(world.driver.create(a_spec()))
    await until(lambda: world.cloud.calls().get("create") == 1)
    create.cancel()
    with pytest.raises(asyncio.CancelledError):
        await create
    assert world.cloud.machines() == []
    world.chaos()
    await until(lambda: len(world.cloud.machines()) == 1)


async def test_latency_is_waited_out(setting: Open) -> None:
    world = await setting()
    world.chaos(latency=0.05)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await world.driver.list()
    assert loop.time() - before >= 0.05


async def test_an_answer_that_is_lost_can_keep_the_caller_waiting(setting: Open) -> None:
    world = await setting()
    world.chaos(create={"lost": 1}, lostAfter=0.1)
    loop = asyncio.get_running_loop()
    before = loop.time()
    with pytest.raises(DeadlineError):
        await world.driver.create(a_spec())
    assert loop.time() - before >= 0.1


# -- in process --------------------------------------------------------------------------------------------------------


async def test_where_time_is_simulated_no_call_waits() -> None:
    world = Setting("in process")
    world.server.stop()
    driver = SimulatedDriver.of(world.cloud, waits=False)
    world.chaos(hang=60, latency=1000)
    with pytest.raises(DeadlineError):
        await driver.create(a_spec())
    with pytest.raises(DeadlineError):
        await driver.list()
    assert world.cloud.machines() == []
    world.clock.pass_(60)
    assert list(await driver.list()) == []  # the create is still on its way
    world.clock.pass_(1000)
    assert [machine.name for machine in await driver.list()] == ["m-1"]


async def test_latency_can_be_slept_by_another_clock() -> None:
    world = Setting("in process")
    world.server.stop()

    async def sleep(seconds: float) -> None:
        world.clock.pass_(seconds)

    driver = SimulatedDriver.of(world.cloud, sleep=sleep)
    world.chaos(hang=60, latency=10)
    await driver.create(a_spec())
    assert world.clock.now - START == pytest.approx(60)


async def test_without_options_it_is_a_cloud_of_its_own() -> None:
    driver = SimulatedDriver()
    assert (driver.traits.ownership, driver.traits.idempotency) == (Ownership.TAGS, Idempotency.TOKEN)
    await driver.start()
    await driver.create(a_spec())
    assert len(await driver.list()) == 1
    await driver.close()


async def test_a_restart_finds_its_machines_again(tmp_path: Path) -> None:
    options = SimulatedOptions(state_file=tmp_path / "simcloud-sim.db")
    found: list[Sequence[Machine]] = []
    for _ in range(2):
        driver = SimulatedDriver(options)
        await driver.start()
        await driver.create(a_spec(tags={"a": "b"}))
        found.append([*await driver.list()])
        await driver.close()
    assert [[(m.machine_id, m.tags) for m in machines] for machines in found] == [
        [(found[0][0].machine_id, {"a": "b"})],
        [(found[0][0].machine_id, {"a": "b"})],
    ]


async def test_a_ledger_that_cannot_be_opened_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "l.db").write_text("not a ledger" * 100)
    with pytest.raises(PreconditionError, match="is not a ledger"):
        await SimulatedDriver(SimulatedOptions(state_file=tmp_path / "l.db")).start()


async def test_a_driver_that_is_not_started_says_so() -> None:
    with pytest.raises(PreconditionError, match="not started"):
        await SimulatedDriver().list()


def test_traits_say_what_the_options_say() -> None:
    options = SimulatedOptions(idempotency=Idempotency.NONE, list_lag=timedelta(seconds=30))
    traits = SimulatedDriver(options).traits
    assert (traits.idempotency, traits.list_delay) == (Idempotency.NONE, timedelta(seconds=30))
    assert traits.provider_id_by is ProviderIdBy.KUBELET
