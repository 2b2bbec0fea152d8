"""A router under the engine: one machine per intent over all clouds, and a cloud that is away takes nothing down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.router.options import BackendOptions
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits, Money
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.findings import FindingKind, all_findings
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency
from cloudgraft.sdk.errors import DeadlineError, OutOfStockError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef, Taint
from cloudgraft.store.records import State
from cloudgraft.store.sql import SqlJournal
from tests.drivers.router.routed import Place, a_shape, an_hour, router
from tests.engine.engine_rig import HandClock
from tests.engine.scripted_cloud import Case, desired_state, group, stepped

PLAIN = TemplateDeclaration()
AWAY = UnavailableError("no route to host")


def routed(id_: str = "g", **changes: Any) -> GroupDeclaration:
    return group(id_, "any", **{"machine": {"shape": "any"}, "template": PLAIN, **changes})


def plan(
    places: Mapping[str, Place], *groups: GroupDeclaration, settings: EngineSettings | None = None
) -> DesiredState:
    """The clouds themselves, and a router over all of them."""
    drivers: dict[str, Driver] = {**places, "any": router(places)}
    return desired_state(drivers, *(groups or (routed(),)), settings=settings)


def ids(case: Case) -> list[str]:
    return sorted(record.machine_id for record in case.machines(State.RUNNING))


async def test_a_stock_out_falls_through_within_one_create_and_the_autoscaler_sees_no_error(tmp_path: Path) -> None:
    rack, burst = Place(), Place()
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        await case.grow(1)
        rack.refuses = OutOfStockError("no host is free")
        await case.grow(2)
        assert ids(case) == ["burst/id-0", "burst/id-1", "rack/id-0"]
        burst.refuses = OutOfStockError("no capacity")
        await case.provider.increase_size("g", 1)
        await case.turns(2)
        failed = [i for i in await case.provider.instances("g") if i.error]
        assert [i.error.code for i in failed if i.error] == ["out_of_stock"]
        assert all(i.error and "rack: no host is free" in i.error.message for i in failed)
        assert all(i.error and "burst: no capacity" in i.error.message for i in failed)


async def test_while_one_cloud_is_away_its_machines_stay_and_the_other_works_as_ever(tmp_path: Path) -> None:
    """Law 6."""
    rack, burst = Place(), Place()
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        await case.grow(2)
        rack.down = AWAY
        await case.grow(1)
        assert ids(case) == ["burst/id-0", "rack/id-0", "rack/id-1"]
        await case.turns(10)
        assert await case.states() == ["RUNNING"] * 3, "two lists without them prove nothing"
        del burst.machines["id-0"]
        await case.turns(4)
        assert ids(case) == ["rack/id-0", "rack/id-1"], "of the cloud that answers it proves what it always does"
        (machine, _) = await case.provider.instances("g")
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=machine.id)])
        await case.turns(4)
        assert case.records(State.DELETING) == 1, "it cannot be deleted now, and it is not forgotten"
        rack.down = None
        await case.turns(10)
        assert len(rack.deleted) == 1
        assert case.records(State.DELETING) == 0
        assert await case.provider.target_size("g") == 1


async def test_after_a_restart_with_one_cloud_away_nothing_is_dropped_and_the_other_works(tmp_path: Path) -> None:
    rack, burst = Place(), Place()
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        await case.grow(2)
        clock = case.clock
    rack.down = AWAY
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst}), clock=clock) as case:
        await case.turns(5)
        await case.grow(1)
        assert ids(case) == ["burst/id-0", "rack/id-0", "rack/id-1"]
        assert await all_findings(case.engine) == [], "none is missing"
        rack.down = None
        await case.turns(4)
        assert ids(case) == ["burst/id-0", "rack/id-0", "rack/id-1"]
        assert (rack.deleted, burst.deleted) == ([], [])


@pytest.mark.parametrize("was_made", [True, False])
@pytest.mark.parametrize("where", ["rack", "burst"])
async def test_an_unknown_outcome_is_settled_by_lists_and_never_doubles(
    tmp_path: Path, where: str, *, was_made: bool
) -> None:
    """Law 3: also when the first cloud has room again by then."""
    places = {"rack": Place(), "burst": Place()}
    lost = places[where]
    if where == "burst":
        places["rack"].refuses = OutOfStockError("none left")
    lost.refuses, lost.is_late = DeadlineError("no answer"), was_made
    async with stepped(tmp_path, plan(places)) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(1)
        for place in places.values():
            place.refuses, place.is_late = None, False
        await case.turns(40, 15)
        assert await case.states() == ["RUNNING"]
        made = [name for name, place in places.items() for _ in place.machines]
        assert made == ([where] if was_made else [made[0]]), "one machine, in both clouds together"
        assert not places["rack"].deleted + places["burst"].deleted


async def test_an_unknown_outcome_waits_for_the_cloud_that_is_away(tmp_path: Path) -> None:
    """It may be there: only its list can tell."""
    rack, burst = Place(), Place()
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        rack.refuses, rack.is_late = DeadlineError("no answer"), True
        await case.provider.increase_size("g", 1)
        await case.turns(1, 0)
        (machine,) = rack.machines.values()
        rack.down, rack.refuses = AWAY, None
        await case.turns(9, 60)
        assert burst.machines == {}
        assert await case.states() == ["CREATING"]
        rack.down = None
        await case.turns(2)
        assert ids(case) == [f"rack/{machine.machine_id}"]


async def test_a_machine_in_a_cloud_that_the_router_does_not_use_any_more_is_not_forgotten(tmp_path: Path) -> None:
    rack, burst = Place(), Place()
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        await case.grow(1)
        drivers = {"rack": rack, "burst": burst, "any": router({"burst": burst})}
        case.engine.reconfigure(desired_state(drivers, routed()))
        await case.provider.refresh()
        await case.turns(10)
        assert ids(case) == ["rack/id-0"]
        (machine,) = await case.provider.instances("g")
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=machine.id)])
        await case.turns(4, 1000)
        assert case.records(State.DELETING) == 1
        assert [(one.kind, one.machine_id) for one in await all_findings(case.engine)] == [
            (FindingKind.STUCK, "rack/id-0")
        ], "it is told, in `cloudgraft orphans list`"


async def test_a_cloud_with_a_group_of_its_own_and_a_router_share_one_account_without_orphans(tmp_path: Path) -> None:
    """Law 4: else the policy for orphans would delete the machines of the other one."""
    rack, burst = Place(), Place()
    settings = EngineSettings(delete_orphans=True, guards=GuardLimits(max_machines=6))
    own = group("own", "rack", machine={"shape": "small"}, template=PLAIN)
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst}, routed(), own, settings=settings)) as case:
        await case.grow(2)
        await case.grow(1, "own")
        rack.refuses = OutOfStockError("none left")
        await case.grow(1)
        await case.turns(4, 1000)
        assert all(worker.observer.orphans == [] for worker in case.engine.workers.values())
        assert (rack.deleted, burst.deleted) == ([], [])
        assert await case.events("orphan") == []
        assert case.engine.guard_usage.tallies["rack"].machines == 1
        assert case.engine.guard_usage.tallies["any"].machines == 3, "law 10: each counts once"


async def test_a_group_that_moves_from_its_cloud_to_a_router_over_it_keeps_its_machines(tmp_path: Path) -> None:
    rack, burst = Place(), Place()
    settings = EngineSettings(delete_orphans=True)
    before = group(cloud="rack", machine={"shape": "small"}, template=PLAIN)
    async with stepped(tmp_path, desired_state({"rack": rack}, before, settings=settings)) as case:
        await case.grow(2)
        case.engine.reconfigure(plan({"rack": rack, "burst": burst}, settings=settings))
        await case.provider.refresh()
        await case.turns(2)
        await case.provider.refresh()
        await case.grow(1)
        await case.turns(4, 1000)
        assert await case.provider.target_size("g") == 3
        assert (rack.deleted, burst.deleted) == ([], [])
        assert await case.events("orphan") == []


async def test_a_lost_journal_is_made_again_only_from_a_list_of_all_clouds(tmp_path: Path) -> None:
    """Law 11."""
    rack, burst = Place(), Place()
    places = {"rack": rack, "burst": burst}
    async with stepped(tmp_path, plan(places)) as case:
        await case.grow(1)
        rack.refuses = OutOfStockError("none left")
        await case.grow(1)
        identity = case.engine.identity
        before = {record.name for record in case.machines()}
    rack.refuses, rack.hides = None, AWAY
    journal = SqlJournal.sqlite(tmp_path / "new.db", cluster_id=identity.cluster_id)
    engine = Engine(plan(places), journal, clock=HandClock(), is_stepped=True)
    await engine.start()
    case = Case(engine, HandClock())
    await case.turns(3)
    assert "any" not in engine.fleet.adopted_clouds, "one cloud was not listed yet"
    with pytest.raises(UnavailableError, match="a part of cloud any cannot be listed"):
        await EngineProvider(engine).node_groups()
    assert "a part of cloud any cannot be listed" in engine.left_out()["g"]
    rack.hides = None
    await case.turns(3)
    await engine.refresh()
    await case.turns(3)
    assert "any" in engine.fleet.adopted_clouds
    assert {record.name for record in case.machines(State.RUNNING)} == before
    assert (rack.deleted, burst.deleted) == ([], [])
    await engine.close()


async def test_clouds_whose_machines_differ_are_refused_at_the_start_with_both_named(tmp_path: Path) -> None:
    taint = Taint(key="gpu", value="yes", effect="NoSchedule")
    rack = Place(shapes=[a_shape(memory="8Gi", labels={"disk": "ssd", "topology.kubernetes.io/zone": "r1"})])
    burst = Place(shapes=[a_shape(memory="7Gi", labels={"topology.kubernetes.io/zone": "a"}, taints=[taint])])
    promises = TemplateDeclaration(labels={"disk": "ssd"}, taints=[taint], capacity={"memory": Quantity("7Gi")})
    too_much = TemplateDeclaration(
        labels={"disk": "hdd"},
        taints=[Taint(key="gpu", value="no", effect="NoSchedule")],
        capacity={"memory": Quantity("8Gi")},
    )
    groups = routed("plain"), routed("good", template=promises), routed("bad", template=too_much)
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst}, *groups)) as case:
        assert [one.id for one in await case.provider.node_groups()] == ["good"]
        template = await case.provider.template("good")
        assert "topology.kubernetes.io/zone" not in template.labels, "it is not the same everywhere"
        assert "node.kubernetes.io/instance-type" not in template.labels
        assert str(template.capacity["memory"]) == "7Gi"
        left_out = case.engine.left_out()
        for part in (
            "memory: rack/small has 8Gi, burst/small has 7Gi; set template.capacity.memory",
            "at most 7Gi",
            "label disk: rack/small has ssd, burst/small has none",
            "taint gpu:NoSchedule: rack/small has none, burst/small has yes",
        ):
            assert part in left_out["plain"]
        for part in (
            "template.capacity.memory is 8Gi, but burst/small has 7Gi",
            "the template has the label disk=hdd, but rack/small has ssd",
            "the template has the taint gpu=no:NoSchedule, but burst/small has yes",
        ):
            assert part in left_out["bad"]


async def test_a_machine_type_that_one_cloud_does_not_have_is_told_and_other_shapes_are_served(tmp_path: Path) -> None:
    rack, burst = Place(), Place(shapes=[a_shape("large")])
    fine = [BackendOptions(cloud="rack", machine={"shape": "small"})]
    wrong = [*fine, BackendOptions(cloud="burst", machine={"shape": "small"})]
    drivers = {"any": router({"rack": rack, "burst": burst}, shapes={"any": fine, "wrong": wrong})}
    groups = routed(), routed("w", machine={"shape": "wrong"})
    async with stepped(tmp_path, desired_state(drivers, *groups)) as case:
        assert [one.id for one in await case.provider.node_groups()] == ["g"]
        assert case.engine.left_out()["w"] == "cloud burst has no machine type 'small'; there is: large"


async def test_what_may_be_spent_counts_the_dearest_cloud(tmp_path: Path) -> None:
    """Law 10: it is enforced before it is known which cloud will make the machine."""
    rack, burst = Place(), Place()
    rack.asked_prices, burst.asked_prices = [an_hour("1")], [an_hour("4")]
    cap = GuardLimits(max_spend_per_day=Money(amount=an_hour("9").hourly, currency="EUR"))
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst}, settings=EngineSettings(guards=cap))) as case:
        await case.provider.increase_size("g", 3)
        await case.turns(2)
        found = await case.provider.instances("g")
        assert sorted(i.error.code if i.error else i.state.name for i in found) == ["RUNNING", "RUNNING", "guard"]
        assert all(i.state is not InstanceState.DELETING for i in found)


async def test_a_double_over_two_clouds_is_seen_and_one_is_kept(tmp_path: Path) -> None:
    """Law 3: a call that was given up came through very late, and the other cloud has made the machine meanwhile."""
    traits = DriverTraits(idempotency=Idempotency.TOKEN, create_timeout=timedelta(seconds=1))
    rack, burst = Place(traits), Place(traits)
    async with stepped(tmp_path, plan({"rack": rack, "burst": burst})) as case:
        rack.refuses = OutOfStockError("none left")
        await case.grow(1)
        rack.refuses = None
        await rack.create(burst.specs[0])
        await case.turns(6)
        assert ids(case) == ["burst/id-0"]
        assert (list(rack.machines), list(burst.machines)) == ([], ["id-0"])
