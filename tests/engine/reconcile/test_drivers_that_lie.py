"""Drivers whose answers make no sense: the trouble stays with their cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import Catalog
from cloudgraft.engine.groups.resolution import resolve_groups
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits, Money
from cloudgraft.engine.machines.identity import TAG_NAME
from cloudgraft.sdk.driver import Driver, Machine, Price, Shape
from cloudgraft.sdk.errors import PermissionDeniedError
from cloudgraft.sdk.types import Taint
from cloudgraft.store.sql import SqlJournal
from tests.engine.scripted_cloud import Cloud, desired_state, group, stepped

LIES: dict[str, Callable[[Machine], Machine]] = {
    "provider_id": lambda m: replace(m, provider_id=5),  # type: ignore[arg-type]  # as a careless author would
    "half a pair": lambda m: replace(m, provider_id="x\ud800"),
    "machine_id": lambda m: replace(m, machine_id="a\0b"),
    "name": lambda m: replace(m, name=None),  # type: ignore[arg-type]
    "state": lambda m: replace(m, state="running"),  # type: ignore[arg-type]
    "tags": lambda m: replace(m, tags=None),  # type: ignore[arg-type]
    "created_at": lambda m: replace(m, created_at="yesterday"),  # type: ignore[arg-type]
    "year one": lambda m: replace(m, created_at=datetime.min),  # noqa: DTZ901 - as a careless author would
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_makes_no_sense_in_a_list_is_the_trouble_of_its_cloud_alone(tmp_path: Path, lie: str) -> None:
    """Law 6: it is told, and neither the journal nor the other cloud suffers."""
    liar, honest = Cloud(), Cloud()
    async with stepped(tmp_path, desired_state({"a": liar, "b": honest}, group(), group("h", "b"))) as case:
        await case.provider.increase_size("g", 1)
        await case.provider.increase_size("h", 1)
        await case.turns()
        liar.shown = LIES[lie]
        await case.turns()
        assert case.engine.trouble() == ""
        assert "the driver's list() answered with machine" in case.engine.workers["a"].observer.health.error
        assert await case.states("g") == ["RUNNING"], "as it was when its cloud last made sense"
        assert await case.states("h") == ["RUNNING"]


async def test_a_list_with_too_many_machines_changes_nothing(tmp_path: Path) -> None:
    """A list that hits its bound is an error, and never a shorter list."""
    liar, honest = Cloud(), Cloud()
    plan = desired_state({"a": liar, "b": honest}, group(), group("h", "b"))
    settings = replace(plan.clouds["a"].settings, max_list_machines=3)
    plan = replace(plan, clouds={**plan.clouds, "a": replace(plan.clouds["a"], settings=settings)})
    async with stepped(tmp_path, plan) as case:
        await case.provider.increase_size("g", 3)
        await case.provider.increase_size("h", 1)
        await case.turns()
        assert await case.states("g") == ["RUNNING"] * 3
        liar.machines["id-x"] = Machine(name="another", machine_id="id-x")
        await case.turns()
        assert "more than 3 entries" in case.engine.workers["a"].observer.health.error
        assert await case.states("g") == ["RUNNING"] * 3
        assert await case.states("h") == ["RUNNING"]
        assert not liar.deleted


async def test_a_machine_with_a_name_that_cannot_be_stored_is_taken_in_under_its_id(tmp_path: Path) -> None:
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        tags = case.engine.identity.tags("n", "g")
        del tags[TAG_NAME]
        await case.engine.close()
        cloud.machines["id-9"] = Machine(name="x\0y", machine_id="id-9", provider_id="cloud://9", tags=tags)
        (tmp_path / "journal.db").unlink()
        again = Engine(
            desired_state({"a": cloud}, group()),
            SqlJournal.sqlite(tmp_path / "journal.db"),
            clock=case.clock,
            is_stepped=True,
        )
        await again.start()
        await again.turn()
        assert [record.name for record in again.fleet.machines.values()] == ["id-9"]
        await again.close()


@pytest.mark.parametrize(
    ("shapes", "prices"),
    [
        (["small"], []),
        ([Shape(name="small", capacity={}, taints=["gpu"])], []),  # type: ignore[list-item]  # as a careless author would
        ([Shape(name="small", capacity={}, taints=[Taint(key="gpu", effect="Never")])], []),
        ([Shape(name="small", capacity={}, taints=[Taint(key="")])], []),
        (None, []),
        ([Shape(name="small", capacity={"cpu": "4"})], []),  # type: ignore[dict-item]  # as a careless author would
        ([], [Price(shape="small", hourly="0.05", currency="EUR")]),  # type: ignore[arg-type]
        ([], [Price(shape="small", hourly=Decimal("0.05"), currency=None)]),  # type: ignore[arg-type]
        ([], [Price(shape="small", hourly=Decimal("inf"), currency="EUR")]),
    ],
)
async def test_an_offer_that_makes_no_sense_keeps_no_other_cloud_from_being_served(
    tmp_path: Path, shapes: Any, prices: Any
) -> None:
    class Liar(Cloud):
        async def shapes(self) -> Sequence[Shape]:
            return shapes  # type: ignore[no-any-return]  # that is the lie

        async def prices(self) -> Sequence[Price]:
            return prices  # type: ignore[no-any-return]

    plan = desired_state({"a": Liar(), "b": Cloud()}, group(machine={"shape": "small"}), group("h", "b"))
    async with stepped(tmp_path, plan) as case:
        await case.turns(13)  # the first start waits for both, and not for long
        assert [g.id for g in await case.provider.node_groups()] == ["h"]
        assert "does not report its machine types and prices: the driver's" in case.engine.left_out()["g"]


async def test_a_driver_that_cannot_be_made_is_the_trouble_of_its_cloud_alone(tmp_path: Path) -> None:
    def impossible() -> Driver:
        raise PermissionDeniedError("the token file cannot be read")

    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        plan = desired_state({"a": cloud, "b": Cloud()}, group(), group("h", "b"))
        broken = replace(plan.clouds["b"], make=impossible)
        case.engine.reconfigure(replace(plan, clouds={**plan.clouds, "b": broken}))
        await case.provider.refresh()
        await case.turns(1)
        assert [g.id for g in await case.provider.node_groups()] == ["g"]
        assert "the token file cannot be read" in case.engine.left_out()["h"]


@pytest.mark.parametrize("verb", ["start", "list"])
async def test_a_file_that_a_driver_lacks_is_named_by_the_trouble_of_its_cloud(tmp_path: Path, verb: str) -> None:
    class Careless(Cloud):
        pass

    async def read(_: Careless) -> None:
        (tmp_path / "token").read_text()

    setattr(Careless, verb, read)
    async with stepped(tmp_path, desired_state({"a": Careless()}, group())) as case:
        await case.turns(2)
        why = f"failed in {verb} with FileNotFoundError: {tmp_path / 'token'}: No such file or directory"
        assert why in case.engine.left_out()["g"]


def test_a_price_in_another_currency_than_the_guard_is_refused() -> None:
    """Law 10: an amount in another currency would be compared as a bare number."""
    cap = GuardLimits(max_spend_per_day=Money(amount=Decimal(40), currency="EUR"))
    plan = desired_state({"a": Cloud()}, group(machine={"shape": "s"}), settings=EngineSettings(guards=cap))
    dollars = Catalog(prices=[Price(shape="s", hourly=Decimal(1), currency="USD")])
    resolution = resolve_groups(plan, {"a": dollars}, {}, lambda *_: None)
    assert not resolution.specs
    assert "EUR (guards.maxSpendPerDay), USD (g)" in resolution.left_out["g"]
    euros = Catalog(prices=[Price(shape="s", hourly=Decimal(1), currency="EUR")])
    assert set(resolve_groups(plan, {"a": euros}, {}, lambda *_: None).specs) == {"g"}
