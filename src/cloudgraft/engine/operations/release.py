"""Releases machines: removes them from the journal and leaves them in their cloud."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import move
from cloudgraft.engine.new_records import about
from cloudgraft.engine.operations.bulk_operations import Item, Result, carry_out, find_record, item_of
from cloudgraft.engine.operations.marking import take_marks
from cloudgraft.engine.ownership.rules import Refusal, released
from cloudgraft.engine.unknown_names import unknown_group
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.store.records import Change, Event, MachineRecord, Presence, State

_NOTES: Final = {
    Presence.NONE: "its cloud holds nothing of it",
    Presence.UNKNOWN: "whether its cloud has it is not known; if that is ever configured again, it is deleted there",
}


async def release(engine: Engine, machines: Sequence[str], *, is_dry_run: bool = True) -> Result:
    """Releases machines by our names for them, their ids or their providerIDs.

    For the autoscaler their nodes belong to no group from then on. cloudgraft never touches them again: they run, and
    cost, until somebody else deletes them. Marks that adoption set are removed; machines that we created keep theirs.
    """
    engine.check_leader()
    if not machines:
        raise InvalidArgumentError("say which machines to release")
    picks = list(dict.fromkeys(machines))
    items = await _carried_out(engine, picks, is_end=False, is_dry_run=is_dry_run)
    return Result(is_dry_run=is_dry_run, items=items)


async def release_group(engine: Engine, group: str, *, is_dry_run: bool = True) -> Result:
    """Releases all machines of a draining group, so that the next Refresh removes it."""
    engine.check_leader()
    found = engine.fleet.groups.get(group)
    if found is None:
        raise unknown_group(engine, group)
    if found.is_configured:
        raise PreconditionError(
            f"node group {group!r} is configured; remove it from the configuration first, or name single machines"
        )
    names = list(found.machines)
    items = await _carried_out(engine, names, is_end=True, is_dry_run=is_dry_run)
    left = sum(bool(item.refused) for item in items)
    notes = [f"{left} machines cannot be released yet; do it again in a while"] if left else []
    return Result(is_dry_run=is_dry_run, items=items, notes=notes)


async def _carried_out(engine: Engine, picks: Sequence[str], *, is_end: bool, is_dry_run: bool) -> Sequence[Item]:
    items = await carry_out(engine, picks, lambda batch: _planned(engine, batch, is_end=is_end), is_dry_run=is_dry_run)
    return items if is_dry_run else await take_marks(engine, items)


def _planned(engine: Engine, picks: Sequence[str], *, is_end: bool = False) -> tuple[list[Item], Change]:
    items: list[Item] = []
    records: dict[str, MachineRecord] = {}
    events: list[Event] = []
    now = engine.clock.now()
    for pick in picks:
        record = find_record(engine, pick)
        if isinstance(record, Refusal):
            items.append(Item(machine_id="", name=pick, refused=record.why))
            continue
        given_up = _given_up(engine, record, now) if is_end else None
        result = given_up or released(record, _observation(engine, record), now)
        if isinstance(result, Refusal):
            items.append(item_of(record, refused=result.why))
            continue
        records[result.name] = result
        items.append(item_of(result, note=_NOTES.get(result.presence, "")))
        events += _events(result, now)
    return items, Change(machines=tuple(records.values()), events=events)


def _given_up(engine: Engine, record: MachineRecord, now: float) -> MachineRecord | None:
    """At the end of a group, also drops machines of a removed cloud: nothing will ever be known of them."""
    observation = _observation(engine, record)
    is_nothing = record.presence is Presence.NONE and (observation is None or not observation.calls.is_open)
    is_lost = record.presence is Presence.UNKNOWN and not record.machine_id and record.cloud not in engine.workers
    return move(record, State.GONE, now) if record.state is not State.GONE and (is_nothing or is_lost) else None


def _events(record: MachineRecord, now: float) -> list[Event]:
    if record.presence is not Presence.PRESENT:
        return [about(record, now, f"an operator gave up its group; {_NOTES[record.presence]}")]
    message = f"an operator released it: it stays in its cloud as {record.machine_id}, and is not ours any more"
    return [
        about(record, now, message),
        about(record, now, message, kind="released", machine_id=record.machine_id),
    ]


def _observation(engine: Engine, record: MachineRecord) -> Observation | None:
    worker = engine.workers.get(record.cloud)
    return worker.observer.peek(record.name) if worker is not None else None
