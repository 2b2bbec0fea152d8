"""What a cloud offers is read anew as often as its driver says, and prices that change are told without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, Money, create_limit
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.sdk import (
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    NotFoundError,
    Price,
    Quantity,
    Shape,
    UnavailableError,
)
from cloudgraft.sdk.types import NodeRef, Taint
from cloudgraft.store.records import State
from tests.conditions import until
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, live, stepped

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GROUP = group(machine={"shape": "S"}, template=TemplateDeclaration())
NODE = NodeRef(name="template-node-for-g-1")


class Market(Cloud):
    """Prices that change by the minute."""

    def __init__(self, lasts: timedelta = timedelta(seconds=30)) -> None:
        super().__init__(DriverTraits(catalog_lasts=lasts))
        self.price: str | None = "0.10"
        self.asked = 0
        self.waiting = 0
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def shapes(self) -> Sequence[Shape]:
        capacity = {"cpu": Quantity("2"), "memory": Quantity("4Gi"), "pods": Quantity(20)}
        return [Shape(name="S", capacity=capacity, taints=(Taint(key="far", effect="NoExecute"),))]

    async def prices(self) -> Sequence[Price]:
        self.asked += 1
        self.waiting += 1
        await self.go_on.wait()
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        return [] if self.price is None else [Price(shape="S", hourly=Decimal(self.price), currency="EUR")]


async def _price(case: Case) -> float:
    return await case.provider.node_price(NODE, NOON, NOON + timedelta(hours=1))


async def _later(case: Case, seconds: float) -> None:
    await case.turns(1, seconds)
    await case.provider.refresh()


async def test_r81_a_price_that_changes_is_told_after_as_long_as_the_driver_says_and_changes_nothing_else(
    tmp_path: Path,
) -> None:
    cloud = Market()
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP)) as case:
        assert await _price(case) == 0.10
        template, spec = await case.provider.template("g"), case.engine.fleet.groups["g"].spec
        learned = dict(case.engine.fleet.learned)
        cloud.price = "0.25"
        await _later(case, 10)
        assert (await _price(case), cloud.asked) == (0.10, 1)
        await _later(case, 21)
        assert (await _price(case), cloud.asked) == (0.25, 2)
        assert await case.provider.template("g") == template
        assert template.taints == (Taint(key="far", effect="NoExecute"),)
        assert case.engine.fleet.groups["g"].spec.labels == spec.labels
        assert case.engine.fleet.learned == learned
        assert await case.events("configured") == ["a new group: min 0, max 10", "changed: price"]


async def test_most_drivers_are_asked_once_an_hour(tmp_path: Path) -> None:
    cloud = Market(DriverTraits().catalog_lasts)
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP)) as case:
        await _later(case, 3599)
        assert cloud.asked == 1
        await _later(case, 1)
        assert cloud.asked == 2


async def test_r83_a_price_that_is_gone_is_not_told_and_the_group_stays(tmp_path: Path) -> None:
    """The autoscaler passes over the group while nobody says what it costs."""
    cloud = Market()
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP)) as case:
        cloud.price = None
        await _later(case, 31)
        assert [g.id for g in await case.provider.node_groups()] == ["g"]
        with pytest.raises(NotFoundError, match="no price is known"):
            await _price(case)
        cloud.price = "0.30"
        await _later(case, 31)
        assert await _price(case) == 0.30


async def test_what_was_told_last_counts_while_a_cloud_tells_nothing(tmp_path: Path) -> None:
    cloud = Market()
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP)) as case:
        cloud.error, cloud.price = UnavailableError("gone for lunch"), "0.30"
        await _later(case, 31)
        assert await _price(case) == 0.10
        cloud.error = None
        await _later(case, 1)  # not after another half minute
        assert await _price(case) == 0.30


async def test_where_a_guard_counts_money_the_last_price_counts(tmp_path: Path) -> None:
    """Law 10."""
    cloud = Market()
    limits = GuardLimits(max_spend_per_day=Money(amount=Decimal(10), currency="EUR"))
    plan = desired_state({"a": cloud}, GROUP, settings=EngineSettings(guards=limits))
    async with stepped(tmp_path, plan) as case:
        cloud.price = None
        await _later(case, 31)
        assert await _price(case) == 0.10


async def test_a_cloud_whose_prices_are_slow_is_listed_as_often(tmp_path: Path) -> None:
    cloud = Market(timedelta(microseconds=1))
    async with live(tmp_path, desired_state({"a": cloud}, GROUP)) as engine:

        def looked(condition: bool) -> bool:
            engine.workers["a"].nudge()
            return condition

        cloud.go_on.clear()
        await until(lambda: looked(cloud.waiting == 1), what="prices are asked for anew")
        asked, lists = cloud.asked, cloud.lists
        await until(lambda: looked(cloud.lists > lists + 2), what="lists go on")
        assert cloud.asked == asked, "one question at a time"


# -- how long a create may take ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configured", "declared", "seconds"),
    [(None, None, 120), (None, 600, 600), (30, 600, 30), (30, None, 30)],
)
def test_a_create_may_take_as_long_as_the_file_says_else_the_driver_else_two_minutes(
    configured: float | None, declared: float | None, seconds: float
) -> None:
    settings = CloudSettings(name="a", create_timeout=None if configured is None else timedelta(seconds=configured))
    traits = DriverTraits(create_timeout=None if declared is None else timedelta(seconds=declared))
    assert create_limit(settings, traits) == seconds


async def test_a_create_that_takes_longer_than_the_driver_declares_is_given_up(tmp_path: Path) -> None:
    class Stuck(Cloud):
        async def create(self, spec: MachineSpec) -> Machine:
            await asyncio.Event().wait()
            raise AssertionError

    cloud = Stuck(DriverTraits(idempotency=Idempotency.TOKEN, create_timeout=timedelta(milliseconds=20)))
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(1)
        assert case.engine.workers["a"].caller.statistics.ended["create", "deadline"] == 1
        assert case.records(State.CREATING) == 1
