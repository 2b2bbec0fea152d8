"""Clouds that lie, journals that fail in a row, clocks that jump, and configurations that change under machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.blueprint import Blueprint, Catalog, CloudDeclaration, GroupDeclaration
from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.identity import TAG_NAME
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.roster import make_roster
from cloudgraft.engine.specs import CloudSettings, EngineSettings, GuardLimits, Money
from cloudgraft.engine.templates import TemplateDeclaration
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import DeadlineError, PermissionDeniedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.service.cloud_provider import Call, CloudProviderService
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change, Contents, State
from cloudgraft.store.sql import SqlJournal
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.engine.rig import HandClock

TEMPLATE = TemplateDeclaration(capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi")})


class Cloud(Driver):
    """Keeps machines in memory, and shows what a test wants it to show."""

    def __init__(self, traits: DriverTraits | None = None) -> None:
        self.traits = traits or DriverTraits()
        self.machines: dict[str, Machine] = {}
        self.deleted: list[str] = []
        self.lists = 0
        self.is_blind = False
        self.shown: Callable[[Machine], Machine] = lambda machine: machine

    async def create(self, spec: MachineSpec) -> Machine:
        number = f"id-{len(self.machines) + len(self.deleted)}"
        machine = Machine(name=spec.name, machine_id=number, provider_id=f"cloud://{spec.name}", tags=dict(spec.tags))
        self.machines[number] = machine
        return machine

    async def delete(self, machine: Machine) -> None:
        self.deleted.append(machine.machine_id)
        self.machines.pop(machine.machine_id, None)

    async def list(self) -> Sequence[Machine]:
        self.lists += 1
        return [] if self.is_blind else [self.shown(machine) for machine in self.machines.values()]


def group(id_: str = "g", cloud: str = "a", **changes: Any) -> GroupDeclaration:
    declared = GroupDeclaration(id=id_, cloud=cloud, min_size=0, max_size=10, template=TEMPLATE)
    return replace(declared, **changes)


def blueprint(
    clouds: Mapping[str, Driver], *groups: GroupDeclaration, settings: EngineSettings | None = None
) -> Blueprint:
    declared = {name: declaration(name, driver) for name, driver in clouds.items()}
    return Blueprint(cluster="t", clouds=declared, groups=groups, settings=settings or EngineSettings())


def declaration(name: str, driver: Driver) -> CloudDeclaration:
    settings = CloudSettings(name=name, observe_every=timedelta(seconds=5))
    return CloudDeclaration(settings=settings, make=lambda: driver, fingerprint=id(driver))


@dataclass
class Case:
    """One engine on a clock in one's hand."""

    engine: Engine
    clock: HandClock

    @property
    def provider(self) -> EngineProvider:
        return EngineProvider(self.engine)

    async def turns(self, count: int = 4, seconds: float = 10) -> None:
        for _ in range(count):
            self.clock.advance(seconds)
            await self.engine.turn()

    async def states(self, id_: str = "g") -> list[str]:
        return [instance.state.name for instance in await self.provider.instances(id_)]

    def records(self, *states: State) -> int:
        return sum(record.state in states for record in self.engine.fleet.machines.values())


@asynccontextmanager
async def stepped(tmp_path: Path, plan: Blueprint) -> AsyncIterator[Case]:
    clock = HandClock()
    engine = Engine(plan, SqlJournal.sqlite(tmp_path / "journal.db"), clock=clock, is_stepped=True)
    await engine.start()
    await engine.refresh()
    try:
        yield Case(engine, clock)
    finally:
        await engine.close()


@asynccontextmanager
async def live(tmp_path: Path, plan: Blueprint) -> AsyncIterator[Engine]:
    engine = Engine(plan, SqlJournal.sqlite(tmp_path / "journal.db"))
    await engine.start()
    await engine.refresh()
    try:
        yield engine
    finally:
        await engine.close()


# -- a cloud that does not show what it has ----------------------------------------------------------------------------


async def test_a_running_machine_that_its_cloud_did_not_show_for_a_while_is_taken_back_and_not_deleted(
    tmp_path: Path,
) -> None:
    """Law 4: nobody had asked for its deletion, and there are pods on it."""
    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 3)
        await case.turns()
        before = await case.provider.instances("g")
        cloud.is_blind = True
        await case.turns()
        assert await case.provider.target_size("g") == 0, "law 5: two complete lists"
        cloud.is_blind = False
        await case.turns()
        assert {i.id for i in await case.provider.instances("g")} == {i.id for i in before}
        assert await case.states() == ["RUNNING"] * 3
        assert await case.provider.target_size("g") == 3
        assert cloud.deleted == []


async def test_what_the_autoscaler_deleted_while_its_cloud_did_not_show_it_is_deleted_when_it_does(
    tmp_path: Path,
) -> None:
    """R56: the call is OK, and it is the autoscaler's word."""
    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (shown,) = await case.provider.instances("g")
        cloud.is_blind = True
        await case.turns()
        for _ in range(2):
            await case.provider.delete_nodes("g", [NodeRef(name="node", provider_id=shown.id)])
        assert await case.provider.target_size("g") == 0
        cloud.is_blind = False
        await case.turns()
        assert cloud.deleted == ["id-0"]
        assert await case.provider.instances("g") == ()


async def test_nothing_is_remembered_of_a_machine_that_turned_up_again_and_went(tmp_path: Path) -> None:
    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (machine,) = cloud.machines.values()
        await case.provider.delete_nodes("g", [NodeRef(name=machine.name, provider_id=machine.provider_id or "")])
        await case.turns()
        cloud.machines[machine.machine_id] = machine
        await case.turns()
        assert cloud.deleted == ["id-0", "id-0"]
        assert case.engine.workers["a"].observer.peek(machine.name) is None


async def test_a_deletion_is_not_repeated_before_a_list_has_shown_that_the_machine_is_still_there(
    tmp_path: Path,
) -> None:
    """Some clouds give an id away again at once: by then it may be another machine's."""
    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (machine,) = cloud.machines.values()
        await case.provider.delete_nodes("g", [NodeRef(name=machine.name, provider_id=machine.provider_id or "")])
        worker = case.engine.workers["a"]
        for _ in range(5):
            await worker.act()
            await worker.caller.settled()
            case.clock.advance(120)
            worker.nudge()
        assert cloud.deleted == ["id-0"]
        cloud.machines["id-0"] = machine  # it ignored that
        await case.turns(1)
        assert cloud.deleted == ["id-0", "id-0"]


async def test_a_cloud_that_answers_with_a_machine_that_is_there_already_has_made_none(tmp_path: Path) -> None:
    """Law 4: what was asked for in vain is given up without touching the machine that somebody runs on."""

    class Truncating(Cloud):
        async def create(self, spec: MachineSpec) -> Machine:
            return next(iter(self.machines.values()), None) or await super().create(spec)

    cloud = Truncating()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (first,) = await case.provider.instances("g")
        await case.provider.increase_size("g", 1)
        await case.engine.workers["a"].act()
        await case.engine.workers["a"].caller.settled()
        await case.engine.workers["a"].act()
        (second,) = [one for one in await case.provider.instances("g") if one.id != first.id]
        await case.provider.delete_nodes("g", [NodeRef(name=second.id, provider_id=second.id)])
        await case.turns(30, 60)
        assert cloud.deleted == []
        assert await case.provider.instances("g") == (first,)


# -- a driver that lies ------------------------------------------------------------------------------------------------

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
    async with stepped(tmp_path, blueprint({"a": liar, "b": honest}, group(), group("h", "b"))) as case:
        await case.provider.increase_size("g", 1)
        await case.provider.increase_size("h", 1)
        await case.turns()
        liar.shown = LIES[lie]
        await case.turns()
        assert case.engine.trouble() == ""
        assert "the driver's list() answered with machine" in case.engine.workers["a"].observer.health.error
        assert await case.states("g") == ["RUNNING"], "as it was when its cloud last made sense"
        assert await case.states("h") == ["RUNNING"]


async def test_a_machine_with_a_name_that_cannot_be_stored_is_taken_in_under_its_id(tmp_path: Path) -> None:
    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        tags = case.engine.identity.tags("n", "g")
        del tags[TAG_NAME]
        await case.engine.close()
        cloud.machines["id-9"] = Machine(name="x\0y", machine_id="id-9", provider_id="cloud://9", tags=tags)
        (tmp_path / "journal.db").unlink()
        again = Engine(
            blueprint({"a": cloud}, group()),
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

    plan = blueprint({"a": Liar(), "b": Cloud()}, group(machine={"shape": "small"}), group("h", "b"))
    async with stepped(tmp_path, plan) as case:
        await case.turns(2)
        await case.provider.refresh()
        assert [g.id for g in await case.provider.node_groups()] == ["h"]
        assert "does not tell what it offers: the driver's" in case.engine.left_out()["g"]


async def test_a_driver_that_cannot_be_made_is_the_trouble_of_its_cloud_alone(tmp_path: Path) -> None:
    def impossible() -> Driver:
        raise PermissionDeniedError("the token file cannot be read")

    cloud = Cloud()
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        plan = blueprint({"a": cloud, "b": Cloud()}, group(), group("h", "b"))
        broken = replace(plan.clouds["b"], make=impossible)
        case.engine.reconfigure(replace(plan, clouds={**plan.clouds, "b": broken}))
        await case.provider.refresh()
        await case.turns(1)
        assert [g.id for g in await case.provider.node_groups()] == ["g"]
        assert "the token file cannot be read" in case.engine.left_out()["h"]


def test_a_price_in_another_currency_than_the_guard_is_refused() -> None:
    """Law 10: an amount in another currency would be compared as a bare number."""
    cap = GuardLimits(max_spend_per_day=Money(amount=Decimal(40), currency="EUR"))
    plan = blueprint({"a": Cloud()}, group(machine={"shape": "s"}), settings=EngineSettings(guards=cap))
    dollars = Catalog(prices=[Price(shape="s", hourly=Decimal(1), currency="USD")])
    roster = make_roster(plan, {"a": dollars}, {})
    assert not roster.specs
    assert "EUR (guards.maxSpendPerDay), USD (g)" in roster.left_out["g"]
    euros = Catalog(prices=[Price(shape="s", hourly=Decimal(1), currency="EUR")])
    assert set(make_roster(plan, {"a": euros}, {}).specs) == {"g"}


# -- a journal that fails ----------------------------------------------------------------------------------------------


class Failing(SqlJournal):
    """Takes nothing any more, and leaves it open whether it did, once told so."""

    is_full = False
    tries = 0
    reads = 0

    async def load(self) -> Contents:
        self.reads += 1
        return await super().load()

    async def write(self, change: Change) -> None:
        if self.is_full:
            self.tries += 1
            raise JournalUnavailableError("the disk is full", is_ambiguous=True)
        await super().write(change)


async def test_a_journal_that_fails_again_and_again_makes_no_storm_of_reads_and_lists(tmp_path: Path) -> None:
    cloud = Cloud()
    journal = Failing.sqlite(tmp_path / "journal.db")
    assert isinstance(journal, Failing)
    engine = Engine(blueprint({"a": cloud}, group()), journal)
    await engine.start()
    await engine.refresh()
    await EngineProvider(engine).increase_size("g", 2)
    journal.is_full = True
    reads, lists = journal.reads, cloud.lists
    await until(lambda: journal.tries >= 3, seconds=20)
    assert journal.reads - reads <= journal.tries + 1
    assert cloud.lists - lists <= journal.tries + 1
    journal.is_full = False
    await until(lambda: bool(cloud.machines) and not engine.trouble(), seconds=20)
    await engine.close()


async def test_a_change_whose_caller_left_before_its_turn_is_not_made(tmp_path: Path) -> None:
    """R45: the caller was told that it failed, and buys elsewhere."""
    async with live(tmp_path, blueprint({"a": Cloud()}, group())) as engine:
        service = CloudProviderService(EngineProvider(engine))
        await until(lambda: bool(engine.fleet.adopted_clouds), seconds=20)
        await service.handle("Refresh", pb.RefreshRequest(), Call())
        async with engine.writer._lock:  # somebody else's write, which hangs
            request = pb.NodeGroupIncreaseSizeRequest(id="g", delta=2)
            with pytest.raises(DeadlineError):
                await service.handle("NodeGroupIncreaseSize", request, Call(seconds_left=0.05))
        await service.close(20)
        assert engine.fleet.groups["g"].target == 0
        await service.handle("NodeGroupIncreaseSize", request, Call())
        assert engine.fleet.groups["g"].target == 2


# -- a configuration that changes under machines -----------------------------------------------------------------------


async def test_a_group_that_moves_to_a_new_cloud_stays_listed_while_that_is_not_ready(tmp_path: Path) -> None:
    """R12: it has machines, and a group that comes and goes costs the autoscaler its memory."""
    old, new = Cloud(), Cloud(DriverTraits(list_delay=timedelta(seconds=60)))
    async with stepped(tmp_path, blueprint({"a": old}, group())) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        case.engine.reconfigure(blueprint({"a": old, "b": new}, group(cloud="b")))
        for _ in range(10):
            await case.provider.refresh()
            assert [g.id for g in await case.provider.node_groups()] == ["g"]
            assert await case.states() == ["RUNNING"] * 2
            await case.turns(1)
        await case.provider.increase_size("g", 1)
        await case.turns()
        assert (len(old.machines), len(new.machines)) == (2, 1)


async def test_the_machines_of_a_cloud_that_is_renamed_keep_their_records(tmp_path: Path) -> None:
    cloud, other = Cloud(), Cloud()
    other.machines["id-0"] = Machine(name="somebody", machine_id="id-0")
    async with stepped(tmp_path, blueprint({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        before = await case.provider.instances("g")
        case.engine.reconfigure(blueprint({"b": cloud, "c": other}, group(cloud="b")))
        for _ in range(5):
            await case.provider.refresh()
            assert await case.provider.instances("g") == before
            await case.turns(1)
        assert {record.cloud for record in case.engine.fleet.machines.values()} == {"b"}
        assert case.engine.fleet.in_cloud("a") == {}
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=before[0].id)])
        await case.turns()
        assert len(cloud.deleted) == 1
        assert other.deleted == []


async def test_machines_of_a_cloud_that_was_removed_still_count_against_the_guards(tmp_path: Path) -> None:
    """Law 10, also after a restart: they cost as before."""
    limits = EngineSettings(guards=GuardLimits(max_machines=2))
    old, new = Cloud(), Cloud()
    async with stepped(tmp_path, blueprint({"a": old}, group(), settings=limits)) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
    plan = blueprint({"b": new}, group("h", "b"), settings=limits)
    async with stepped(tmp_path, plan) as case:
        await case.turns(2)
        await case.provider.refresh()
        await case.provider.increase_size("h", 1)
        (refused,) = await case.provider.instances("h")
        assert refused.error is not None
        assert refused.error.code == "guard"
        assert refused.state is InstanceState.CREATING


async def test_an_account_that_two_clouds_show_has_no_orphans_in_either(tmp_path: Path) -> None:
    """Law 4: else the policy for orphans would delete the machines of the other one."""

    class Window(Cloud):
        async def list(self) -> Sequence[Machine]:
            return await account.list()

        async def delete(self, machine: Machine) -> None:
            await account.delete(machine)

    account = Cloud()
    settings = EngineSettings(delete_orphans=True)
    plan = blueprint({"a": account, "b": Window()}, group(), group("h", "b"), settings=settings)
    async with stepped(tmp_path, plan) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        await case.turns(4, 1000)
        assert case.engine.workers["b"].observer.orphans == []
        assert account.deleted == []
        assert await case.states() == ["RUNNING"] * 2


async def test_the_place_of_a_machine_in_a_group_that_moved_is_not_filled_from_the_old_cloud(tmp_path: Path) -> None:
    old, new = Cloud(DriverTraits(provider_id="a://{name}")), Cloud()
    async with stepped(tmp_path, blueprint({"a": old}, group(min_size=1))) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        case.engine.reconfigure(blueprint({"a": old, "b": new}, group(cloud="b", min_size=1)))
        await case.provider.refresh()
        await case.turns(2)
        await case.provider.refresh()
        old.shown = lambda machine: replace(machine, state=MachineState.STOPPED)
        await case.turns(5, 200)
        assert not [r for r in case.engine.fleet.machines.values() if r.cloud == "b" and r.provider_id[:4] == "a://"]


# -- time --------------------------------------------------------------------------------------------------------------


@dataclass
class Hands:
    """A clock on the wall, and one that nobody can set."""

    wall: float = 1_000_000.0
    ran: float = 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.ran += seconds


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_makes_nothing_late_and_catches_up_slowly(jump: float) -> None:
    hands = Hands()
    clock = SystemClock(lambda: hands.wall, lambda: hands.ran)
    hands.passes(10)
    assert clock.now() == pytest.approx(hands.wall)
    before, hands.wall = hands.wall, hands.wall + jump
    assert clock.now() == pytest.approx(before)
    hands.passes(60)
    assert clock.now() == pytest.approx(before + (90 if jump > 0 else 30))
    hands.passes(3 * 3600)
    assert clock.now() == pytest.approx(hands.wall)


def test_a_clock_that_showed_no_time_at_all_is_believed_at_once_when_it_is_set() -> None:
    hands = Hands(wall=0.0)
    clock = SystemClock(lambda: hands.wall, lambda: hands.ran)
    hands.wall = 1_800_000_000.0
    assert clock.now() == pytest.approx(hands.wall)


async def test_the_clock_of_this_machine_goes() -> None:
    clock = SystemClock()
    first = clock.now()
    await asyncio.sleep(0.01)
    assert clock.now() > first
