"""`guards.maxDeletesPerHour`: deletions that nobody ordered are few, whatever goes wrong, and none is lost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits, Money
from cloudgraft.engine.guards import DeleteGuard
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change, Event, State
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped

TWO = EngineSettings(guards=GuardLimits(max_deletes_per_hour=2))
HOUR = 3600.0


def broken(machine: Machine) -> Machine:
    return replace(machine, state=MachineState.FAILED, reason="no disk")


async def failed(case: Case, count: int) -> None:
    """So many machines that their cloud reports as failed, while they cannot be deleted without its answer."""
    await case.provider.increase_size("g", count)
    await case.turns(4)
    assert len(case.machines(State.FAILED)) == count


async def test_failed_machines_are_deleted_no_faster_than_the_guard_allows(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.shown = broken
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=TWO)) as case:
        await failed(case, 5)
        assert len(cloud.deleted) == 2
        (told,) = await case.events("guard")
        assert "no disk" in told
        assert "guards.maxDeletesPerHour is 2 for all clouds" in told
        removals = await case.events("removal")
        assert [text.partition(" is being deleted")[0] for text in removals] == ["machine id-0", "machine id-1"]
    # Counted from the journal, also by the next process.
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=TWO), clock=case.clock) as case:
        await case.turns(3)
        assert len(cloud.deleted) == 2
        await case.turns(1, HOUR)
        assert len(cloud.deleted) == 4, "none is lost"
        await case.turns(2, HOUR)
        assert len(cloud.deleted) == 5


async def test_what_the_autoscaler_orders_neither_waits_nor_counts(tmp_path: Path) -> None:
    """Also of a machine that failed, and of one whose time as a failed one was up while it waited."""
    cloud = Cloud()
    none = EngineSettings(guards=GuardLimits(max_deletes_per_hour=0))
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=none)) as case:
        (ordered,) = await case.grow()
        cloud.shown = lambda machine: machine if machine.name == ordered else broken(machine)
        await failed(case, 2)
        assert cloud.deleted == []
        one, two = case.machines(State.FAILED)
        for record in (next(r for r in case.machines() if r.name == ordered), one):
            await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])
        await case.turns(2)
        assert len(cloud.deleted) == 2
        await case.turns(2, 1300)
        assert [record.name for record in case.machines(State.DELETING)] == [two.name]
        assert len(cloud.deleted) == 2
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=two.provider_id)])
        await case.turns(2)
        assert len(cloud.deleted) == 3
        assert await case.events("removal") == []


async def test_a_broken_machine_is_not_replaced_while_it_may_not_be_deleted(tmp_path: Path) -> None:
    cloud = Cloud()
    none = EngineSettings(guards=GuardLimits(max_deletes_per_hour=0))
    async with stepped(tmp_path, desired_state({"a": cloud}, group(min_size=1), settings=none)) as case:
        await case.grow()
        cloud.shown = lambda machine: replace(machine, state=MachineState.STOPPED)
        await case.turns(5, 200)
        assert (case.records(State.RUNNING), len(cloud.machines), cloud.deleted) == (1, 1, [])
        (told,) = await case.events("repair")
        assert "guards.maxDeletesPerHour is 0" in told
        case.engine.reconfigure(desired_state({"a": cloud}, group(min_size=1), settings=TWO))
        await case.provider.refresh()
        await case.turns(4)
        assert cloud.deleted == ["id-0"]
        assert len(await case.events("removal")) == 1


async def test_doubles_count(tmp_path: Path) -> None:
    cloud = Cloud()
    none = EngineSettings(guards=GuardLimits(max_deletes_per_hour=0))
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=none)) as case:
        await case.grow()
        (first,) = cloud.machines.values()
        cloud.machines["twin"] = replace(first, machine_id="twin")
        await case.turns(4)
        assert cloud.deleted == []
        case.engine.reconfigure(desired_state({"a": cloud}, group(), settings=TWO))
        await case.provider.refresh()
        await case.turns(4)
        assert cloud.deleted == ["twin"]
        assert len(await case.events("removal")) == len(await case.events("double")) == 1


async def test_orphans_that_the_policy_deletes_count(tmp_path: Path) -> None:
    cloud, policy = Cloud(), replace(TWO, delete_orphans=True)
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=policy)) as case:
        await case.turns(1)
        identity = case.engine.identity
        for number in range(4):
            name = identity.new_name("g")
            machine = Machine(name=name, machine_id=f"o-{number}", tags=identity.tags(name, "g"))
            cloud.machines[machine.machine_id] = machine
        await case.turns(3, 1900)
        await case.turns(3)
        assert len(cloud.deleted) == 2
        assert len(await case.events("removal")) == len(await case.events("orphan_deleted")) == 2
        await case.turns(2, HOUR)
        assert len(cloud.deleted) == 4


async def test_a_deletion_that_could_not_be_written_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no call is made before it is written: a restart could not count it."""
    cloud, refused = Cloud(), list[int]()
    cloud.shown = broken
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=TWO)) as case:
        write = case.engine.journal.write

        async def failing(change: Change) -> None:
            if any(event.kind == "removal" for event in change.events) and not refused:
                refused.append(len(cloud.deleted))
                raise JournalUnavailableError("the disk is full")
            await write(change)

        monkeypatch.setattr(case.engine.journal, "write", failing)
        await case.provider.increase_size("g", 1)
        with pytest.raises(JournalUnavailableError):
            await case.turns(3)
        assert (refused, cloud.deleted) == ([0], [])
        await case.turns(2)
        assert cloud.deleted == ["id-0"]
        assert len(await case.events("removal")) == 1


async def test_status_and_explain_tell_of_deletions_that_wait(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.shown = broken
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=TWO)) as case:
        await failed(case, 3)
        report = await make_report(case.engine)
        assert [(g.guard, g.used, g.limit) for g in report.guards] == [("maxDeletesPerHour", 2, 2)]
        (served,) = report.groups
        assert served.held == 1
        (waiting,) = [machine for machine in served.machines if machine.trouble]
        assert "guards.maxDeletesPerHour is 2 for all clouds" in waiting.trouble
        assert "its deletion waits" in (await explain(case.engine, waiting.name)).verdict
        assert any(
            "1 decided about, and held back" in reason.what for reason in (await explain(case.engine, "g")).reasons
        )


def test_each_cloud_has_its_own_limit_beside_that_of_all() -> None:
    guard = DeleteGuard()
    guard.configure(GuardLimits(max_deletes_per_hour=3), {"a": GuardLimits(max_deletes_per_hour=1), "b": GuardLimits()})
    guard.count("a", "1", 0.0)
    assert guard.refusal("a", "2", 1.0) == "clouds.a.engine.guards.maxDeletesPerHour is 1"
    assert guard.refusal("a", "1", 1.0) == "", "asked again, it counts once"
    guard.count("b", "1", 2.0)
    guard.count("b", "2", 3.0)
    assert guard.refusal("b", "3", 4.0) == "guards.maxDeletesPerHour is 3 for all clouds"
    assert [(use.scope, use.used) for use in guard.use(4.0)] == [("", 3), ("a", 1)]
    assert guard.refusal("b", "3", HOUR) == ""


def test_a_clock_that_was_set_back_holds_a_deletion_for_an_hour_only() -> None:
    guard = DeleteGuard()
    guard.configure(GuardLimits(max_deletes_per_hour=1), {})
    guard.load([Event(at=9 * HOUR, kind="removal", message="", cloud="a", data={"machine_id": "1"})], HOUR)
    assert guard.refusal("a", "2", 1.9 * HOUR)
    assert not guard.refusal("a", "2", 2 * HOUR)


class OneId(Cloud):
    """Gives every machine the same id, as a cloud does that gives the lowest free one."""

    async def create(self, spec: MachineSpec) -> Machine:
        machine = Machine(name=spec.name, machine_id="100", tags=dict(spec.tags), state=MachineState.FAILED)
        self.machines["100"] = machine
        return machine


async def test_another_machine_with_the_same_id_counts_again(tmp_path: Path) -> None:
    cloud = OneId()
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=TWO)) as case:
        for _ in range(4):
            await case.provider.increase_size("g", 1)
            await case.turns(4)
        assert cloud.deleted == ["100"] * 2


def test_what_counted_already_is_not_taken_for_new() -> None:
    guard = DeleteGuard()
    guard.configure(GuardLimits(max_deletes_per_hour=1), {})
    assert guard.count("a", "m", 0.0, name="one")
    assert not guard.count("a", "m", 1.0, name="one"), "so that a journal that fails now does not take it back"
    assert guard.refusal("a", "m", 2.0, name="one") == ""
    assert guard.refusal("a", "m", 2.0, name="two")


async def test_machines_whose_deletion_waits_leave_no_room_for_others(tmp_path: Path) -> None:
    """Law 10: their records are at their end, and their cloud has them all the same."""
    cloud = Cloud()
    price = Money(amount=Decimal("0.50"), currency="EUR")
    limits = GuardLimits(max_machines=2, max_deletes_per_hour=0, max_spend_per_day=replace(price, amount=Decimal(50)))
    settings = EngineSettings(guards=limits)
    async with stepped(tmp_path, desired_state({"a": cloud}, group(price=price), settings=settings)) as case:
        await case.grow(2)
        kept = dict(cloud.machines)
        spent = {use.guard: use.used for use in case.engine.guard_use()}["maxSpendPerDay"]
        unwanted = [NodeRef(name=record.name, provider_id=record.provider_id) for record in case.machines()]
        await case.provider.delete_nodes("g", unwanted)
        await case.turns(4)
        assert case.records(State.GONE) == 2
        cloud.machines = dict(kept)  # lists were wrong about them
        await case.turns(4)
        await case.provider.increase_size("g", 2)
        await case.turns(36, 100)
        assert cloud.machines == kept
        used = {use.guard: use.used for use in case.engine.guard_use()}
        assert used["maxMachines"] == 2
        assert used["maxSpendPerDay"] == pytest.approx(spent + 1, abs=0.05), "two machines at 0.50 for an hour"
