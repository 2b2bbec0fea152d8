"""Marks adopted machines in their clouds, and removes the marks from released ones.

The journal has the change already (law 2). A mark that cannot be set is reported: the proof of the adopted machine is
then its id with its creation time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.new_records import about
from cloudgraft.engine.operations.bulk_operations import Item
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnsupportedError
from cloudgraft.store.records import Change, MachineRecord

_PATIENCE: Final = 20.0  # seconds that an operator waits for all calls; calls under way continue

_Marks: TypeAlias = Mapping[str, str | None]


async def put_marks(engine: Engine, items: Sequence[Item]) -> Sequence[Item]:
    """Marks adopted machines. Returns the items, with a note where that failed."""
    return await _mark_all(engine, items, lambda record: engine.identity.tags(record.name, record.group))


async def take_marks(engine: Engine, items: Sequence[Item]) -> Sequence[Item]:
    """Removes the marks from adopted machines that are released: a lost journal must not make them ours again."""
    return await _mark_all(engine, items, lambda record: dict.fromkeys(engine.identity.tags(record.name, record.group)))


async def _mark_all(
    engine: Engine, items: Sequence[Item], marks_of: Callable[[MachineRecord], _Marks]
) -> Sequence[Item]:
    notes = await asyncio.gather(*(_mark(engine, item, marks_of) for item in items))
    return [
        replace(item, note="; ".join(filter(None, (item.note, note)))) for item, note in zip(items, notes, strict=True)
    ]


async def _mark(engine: Engine, item: Item, marks_of: Callable[[MachineRecord], _Marks]) -> str:
    """Returns a note for the operator; empty when the marks are correct."""
    record, worker = engine.fleet.machines.get(item.name), engine.workers.get(item.cloud)
    if item.refused or record is None or not record.is_adopted or worker is None:
        return ""
    machine, marks = _shown(engine, worker, record), marks_of(record)
    if machine is None or all(machine.tags.get(key) == value for key, value in marks.items()):
        return ""
    try:
        await _call(worker, machine, marks)
    except UnsupportedError:
        return _without_marks(record) if any(marks.values()) else ""
    except CloudgraftError as error:
        message = f"{_FAILED[any(marks.values())]}: {error.message}"
        event = about(record, engine.clock.now(), message, kind="unmarked", machine_id=record.machine_id)
        await engine.writer.write(lambda: Change(events=(event,)))
        return message
    return ""


def _shown(engine: Engine, worker: Worker, record: MachineRecord) -> Machine | None:
    """The machine in the latest list, if it is still the one that the operator named."""
    listing = worker.observer.listing
    machine = listing.by_id.get(record.machine_id) if listing is not None else None
    ownership = worker.driver.traits.ownership
    is_same = machine is not None and engine.identity.is_proven(machine, ownership, record, was_always_there=True)
    return machine if is_same else None


async def _call(worker: Worker, machine: Machine, marks: _Marks) -> None:
    call: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(_PATIENCE):
            await worker.caller.room()
            call = worker.caller.mark(machine, marks)
            await asyncio.wait({call})
    except TimeoutError:
        what = "is too busy" if call is None else "has not answered yet"
        raise DeadlineError(f"cloud {worker.name} {what}") from None
    if not call.cancelled():
        call.result()


_FAILED: Final = {
    True: "its cloud did not take our marks",
    False: "our marks are still on it; take them off, or a lost journal will make it ours again",
}


def _without_marks(record: MachineRecord) -> str:
    if record.created_at is not None:
        return ""
    return "its cloud keeps no marks and tells no creation time: adopt it again if it was ever away"
