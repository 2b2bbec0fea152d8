"""Takes away protections of the journal, and of what is taken in from clouds."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from cloudgraft.engine.operations.scaling import _CHEAPEST_FIRST
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.engine.writer import Writer
from cloudgraft.store.records import Change, CloudRecord, State
from cloudgraft.store.sql import SqlJournal
from tests.simulation.planted.fault import both, plant, replaced

__all__: list[str] = []

Patch = AbstractContextManager[object]


@plant(
    "answered-before-commit",
    "a change is acknowledged before it is on the disk",
    finds="acknowledged-is-lost",
    seed=6,
    plan="".join(f"{at}:crash:{steps},5;" for at, steps in ((40, 0), (70, 0), (100, 0), (130, 0), (160, 0), (190, 0))),
)
def answered_before_commit() -> Patch:
    real = SqlJournal.write
    unwaited: list[asyncio.Task[None]] = []

    async def write(self: SqlJournal, change: Change) -> None:
        async def later() -> None:
            await asyncio.sleep(20)
            await real(self, change)

        unwaited.append(asyncio.create_task(later()))

    return replaced("cloudgraft.store.sql.SqlJournal.write", write)


@plant(
    "answer-without-write",
    "DeleteNodes and IncreaseSize are answered without waiting for the journal",
    finds="answer-without-change",
    seed=6,
)
def answer_without_write() -> Patch:
    async def write(self: Writer, plan: Any) -> Any:
        task = asyncio.create_task(self._in_turn(plan))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return Change()

    async def provider_write(self: Any, group: str, delta: int) -> None:
        self._group(group)
        await write(self.engine.writer, lambda: self.plan_increase(group, delta))

    return replaced("cloudgraft.engine.provider.EngineProvider.increase_size", provider_write)


@plant(
    "orders-forget-their-id",
    "an operator's order is not known again by its id",
    finds="order-made-once",
    seed=6,
    plan="".join(
        f"{2000 + 200 * steps}:scale:a,+1,0,1;{2000 + 200 * steps}:crash:{steps},5;" for steps in range(3, 12)
    ),
)
def orders_forget_their_id() -> Patch:
    return replaced("cloudgraft.engine.operations.scaling.answered", lambda *_, **__: None)


@plant(
    "orders-take-what-is-in-use",
    "an operator's order may remove machines that pods may run on",
    finds="removed-in-use",
    seed=6,
    plan="9000:scale:a,-2,0,1",
)
def orders_take_what_is_in_use() -> Patch:
    module = "cloudgraft.engine.operations.scaling"
    return both(
        replaced(f"{module}._may_be_in_use", lambda *_: False),
        replaced(f"{module}._CHEAPEST_FIRST", (*_CHEAPEST_FIRST, State.RUNNING)),
    )


@plant(
    "nothing-is-adopted",
    "after a lost journal the machines that are there are not taken in",
    finds="node-denied",
    seed=6,
    plan="2000:journal-lost:10,0",
)
def nothing_is_adopted() -> Patch:
    def adoption(self: Observer, *, is_last: bool) -> Change:
        now = self._context.clock.now()
        return Change(clouds=[CloudRecord(name=self.name, adopted_at=now)])

    return replaced("cloudgraft.engine.reconcile.observer.Observer._adoption", adoption)


@plant(
    "groups-unread-in-names",
    "machines that a list showed before the groups were known are not taken in, where only names tell their group",
    finds="node-denied",
    seed=22,
    plan="2000:journal-lost:10,0",
)
def groups_unread_in_names() -> Patch:
    real = Observer._adoption

    def adoption(self: Observer, *, is_last: bool) -> Change:
        self.orphans = [orphan for orphan in self.orphans if orphan.group is not None]
        return real(self, is_last=is_last)

    return replaced("cloudgraft.engine.reconcile.observer.Observer._adoption", adoption)
