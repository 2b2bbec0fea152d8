"""What the crash test once found, each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines.outcomes import Created
from cloudgraft.engine.new_records import wanted
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.crash.points import Trap
from tests.crash.setting import Order, Variant, desired_state
from tests.crash.trapped import TrappedDatabase


class OneByOne(Driver):
    """Answers a create when it is told to."""

    def __init__(self) -> None:
        self.told: dict[str, asyncio.Event] = {}

    async def create(self, spec: MachineSpec) -> Machine:
        await self.told.setdefault(spec.name, asyncio.Event()).wait()
        return Machine(name=spec.name, machine_id=f"id-{spec.name}")

    async def delete(self, machine: Machine) -> None:
        raise NotImplementedError

    async def list(self) -> Sequence[Machine]:
        return []


async def test_an_outcome_that_comes_after_others_were_taken_is_not_lost(tmp_path: Path) -> None:
    engine = Engine(desired_state(order(tmp_path), SimulatedDriver), SqlJournal.sqlite(tmp_path / "journal.db"))
    await engine.start()
    group = engine.fleet.groups["web"].spec
    records = [wanted(group, engine.fleet, engine.identity, engine.traits("sim"), engine.clock.now()) for _ in range(2)]
    await engine.close()
    driver = OneByOne()
    caller = Caller(driver, CloudSettings(name="sim"), SystemClock(), may_act=lambda: True, on_outcome=lambda: None)
    for record in records:
        caller.create(record)
    await until(lambda: len(driver.told) == 2)
    taken = []
    for record in records:
        driver.told[record.name].set()
        left = caller.under_way - 1
        await until(lambda left=left: caller.under_way == left)  # type: ignore[misc]  # mypy knows no default of a lambda
        taken.append(caller.take())
    assert taken == [
        [(record.name, Created(Machine(name=record.name, machine_id=f"id-{record.name}")))] for record in records
    ]


async def test_a_refresh_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    trap = Trap("", None)
    journal = SqlJournal(TrappedDatabase(tmp_path / "journal.db", trap))
    engine = Engine(desired_state(order(tmp_path), SimulatedDriver), journal, is_stepped=True)
    await engine.start()
    await engine.turn()
    await engine.refresh()
    before = trap.passed()
    for _ in range(3):
        await engine.refresh()
    assert trap.passed() == before
    await engine.close()


def order(directory: Path) -> Order:
    return Order(directory=directory, url="", variant=Variant())
