"""What the engine concludes from a router's list while one of its clouds is away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, MachineSpec
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.store.records import State
from tests.drivers.router.routed import Place, router
from tests.engine.scripted_cloud import Case, desired_state, group, stepped

AWAY = UnavailableError("no route to host")


def plan(places: Mapping[str, Place], settings: EngineSettings | None = None) -> DesiredState:
    drivers: dict[str, Driver] = {**places, "any": router(places)}
    return desired_state(
        drivers, group("g", "any", machine={"shape": "any"}, template=TemplateDeclaration()), settings=settings
    )


def ids(case: Case) -> list[str]:
    return sorted(record.machine_id for record in case.machines(State.RUNNING))


async def test_a_double_that_is_seen_while_its_cloud_is_away_does_not_take_the_place_of_a_machine(
    tmp_path: Path,
) -> None:
    """Law 3: which of them joined, or is older, is known only when both are seen."""
    traits = DriverTraits(idempotency=Idempotency.TOKEN, create_timeout=timedelta(seconds=1))
    rack, burst = Place(traits), Place(traits)
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        await case.grow(1)
        (before,) = await case.provider.instances("g")
        rack.down = AWAY
        await burst.create(rack.specs[0])
        await case.turns(6)
        assert ids(case) == ["rack/id-0"]
        (after,) = await case.provider.instances("g")
        assert after.id == before.id
        rack.down = None
        await case.turns(6)
        assert ids(case) == ["rack/id-0"]
        assert (rack.deleted, burst.deleted) == ([], ["id-0"])


async def test_orphans_in_a_cloud_that_is_away_still_count_and_are_told_of_once(tmp_path: Path) -> None:
    """Law 10: what may still be running may still cost."""
    rack, burst = Place(), Place()
    guards = EngineSettings(guards=GuardLimits(max_machines=2))
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst}, settings=guards)) as case:
        await case.turns(2)
        tags = case.engine.identity.tags("x", "g")
        await rack.create(MachineSpec(name="x", group="g", tags=tags))
        await case.turns(2)
        assert case.engine.guard_usage.tallies["any"].machines == 1
        told = await case.events("orphan")
        rack.hides = AWAY
        await case.turns(3)
        assert case.engine.guard_usage.tallies["any"].machines == 1
        rack.hides = None
        await case.turns(2)
        assert await case.events("orphan") == told
        rack.machines.clear()
        await case.turns(2)
        assert case.engine.guard_usage.tallies["any"].machines == 0


async def test_a_cloud_that_was_never_reached_weakens_no_list_of_the_others(tmp_path: Path) -> None:
    """Law 6: a remote driver declares the weakest of all until it was asked."""
    rack, burst = Place(), Place(DriverTraits(complete_list=False, list_delay=timedelta(days=1)))
    burst.down = AWAY
    places = {"rack": rack, "burst": burst}
    async with stepped(tmp_path, plan({"rack": rack, "burst": Place()})) as case:
        await case.grow(2)
        clock = case.clock
    async with stepped(tmp_path, plan(places), clock=clock) as case:
        await case.turns(2)
        rack.machines.pop("id-0")
        await case.turns(4)
        assert ids(case) == ["rack/id-1"]
        burst.down = None
        await case.turns(2)
        rack.machines.pop("id-1")
        await case.turns(4)
        assert ids(case) == ["rack/id-1"], "from now on it counts"
