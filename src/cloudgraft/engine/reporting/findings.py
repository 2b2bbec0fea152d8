"""Finds orphans in the clouds and machines of the journal in trouble, for operators."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.ownership.orphans import Orphan, OrphanKind
from cloudgraft.engine.reconcile.observer import SLICE
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.reporting.report_json import iso
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.store.records import MachineRecord, Presence, State

_STUCK_AFTER: Final = 900.0  # seconds; a deletion that takes longer is worth a look
_STUCK_FAILURES: Final = 3


class FindingKind(enum.Enum):
    """The problem. The first three kinds are in a cloud and not in the journal, the others are in the journal."""

    UNKNOWN = "unknown"  # it is proven to be ours, and the journal does not have it
    UNMARKED = "unmarked"  # it is named like ours but not proven to be
    RELEASED = "released"  # an operator released it, and it still looks like ours
    MISSING = "missing"  # the latest list of its cloud does not have it
    UNPROVEN = "unproven"  # its cloud has it, without our marks: it cannot be deleted
    STUCK = "stuck"  # it should be gone, and is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One machine, its problem, and what an operator can do."""

    kind: FindingKind
    cloud: str
    group: str
    name: str
    machine_id: str
    provider_id: str
    state: str  # for an orphan as its cloud reports it, else as in the journal
    since: str  # when it was created, or entered that state; empty when unknown
    detail: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A cloud whose orphans are not all known, and why."""

    cloud: str
    why: str


def unknown_clouds(engine: Engine) -> list[Unknown]:
    """The clouds of which the findings may lack something: no orphan there does not mean that there is none."""
    found = ((worker.name, _why_unknown(engine, worker)) for worker in engine.workers.values())
    return [Unknown(cloud=cloud, why=why) for cloud, why in found if why]


def _why_unknown(engine: Engine, worker: Worker) -> str:
    observer, health = worker.observer, worker.observer.health
    if observer.listing is None:
        return f"it was not listed yet{f': {health.error}' if health.error else ''}"
    if health.failures:
        age = round(engine.clock.now() - observer.listing.began)
        return f"its lists fail, and the last good one is {age} s old{f': {health.error}' if health.error else ''}"
    if observer.blocked:
        return observer.blocked
    if worker.name not in engine.fleet.adopted_clouds:
        return "the journal is new, and machines of ours there are still being taken in; nothing is created before"
    return "" if observer.listing.is_whole else "a part of it cannot be listed"


async def all_findings(engine: Engine) -> list[Finding]:
    """All findings, cloud by cloud, without blocking the event loop."""
    found: list[Finding] = []
    for worker in list(engine.workers.values()):
        worker.observer.review()
        found += map(_orphan, worker.observer.orphans)
        records = list(engine.fleet.in_cloud(worker.name).values())
        async for some in in_slices(records, SLICE):
            found += _in_trouble(worker, some, engine.clock.now())
        await asyncio.sleep(0)
    return found


_ORPHANS: Final = {
    OrphanKind.UNKNOWN: ("it has our marks and is not in the journal", "adopt {id}, or delete {id}"),
    OrphanKind.UNMARKED: (
        "it is named like ours but does not show our marks, and is not in the journal",
        "adopt {id} if it is ours, or delete {id} --force",
    ),
    OrphanKind.RELEASED: ("it was released, and still looks like ours", "adopt {id} takes it back; or delete {id}"),
}


def _orphan(orphan: Orphan) -> Finding:
    machine = orphan.machine
    detail, hint = _ORPHANS[orphan.kind]
    return Finding(
        kind=FindingKind(orphan.kind.value),
        cloud=orphan.cloud,
        group=orphan.group or "",
        name=machine.name,
        machine_id=machine.machine_id,
        provider_id=machine.provider_id or "",
        state=machine.state.value,
        since=iso(machine.created_at.timestamp()) if machine.created_at else "",
        detail=detail,
        hint=hint.format(id=machine.machine_id),
    )


def _in_trouble(worker: Worker, records: Sequence[MachineRecord], now: float) -> Iterator[Finding]:
    for record in records:
        observation = worker.observer.peek(record.name)
        if observation is None or worker.observer.listing is None:
            continue
        kind = _kind_of(worker, record, observation, now)
        if kind is not None:
            yield _recorded(kind, record, observation, worker)


def _kind_of(worker: Worker, record: MachineRecord, observation: Observation, now: float) -> FindingKind | None:
    if observation.listed.machine is not None and not observation.listed.is_ours:
        return FindingKind.UNPROVEN
    if observation.listed.machine is None and observation.listed.unproven is not None:
        return FindingKind.UNPROVEN
    is_unwanted = record.state in (State.DELETING, State.FAILED)
    if is_unwanted and record.presence is not Presence.NONE:
        is_late = now - record.state_since >= _STUCK_AFTER
        return FindingKind.STUCK if is_late or observation.calls.failures >= _STUCK_FAILURES else None
    listing = worker.observer.listing
    seen_by = record.state_since + worker.driver.traits.list_delay.total_seconds()
    if record.presence is not Presence.PRESENT or listing is None or not listing.tells_of(record):
        return None
    return FindingKind.MISSING if listing.began >= seen_by and observation.listed.machine is None else None


def _recorded(kind: FindingKind, record: MachineRecord, observation: Observation, worker: Worker) -> Finding:
    seen = observation.listed.machine or observation.listed.unproven
    machine_id = seen.machine_id if seen else record.machine_id
    match kind:
        case FindingKind.UNPROVEN:
            detail = "its cloud shows it without our marks, so it is not deleted"
            if record.is_adopted:
                detail = "it does not prove to be the machine that was adopted, so it is not deleted"
            hint = f"adopt {machine_id} says that it is ours all the same; release {record.name} leaves it alone"
        case FindingKind.STUCK:
            asked, failed = observation.calls.deletes + observation.calls.failures, observation.calls.failures
            detail = f"its cloud was asked {asked} times to delete it, {failed} failed"
            hint = f"look at it in its cloud; release {record.name} leaves it alone"
        case _:
            is_believed = worker.driver.traits.complete_list
            detail = "the latest list of its cloud does not have it"
            hint = "wait for one more list" if is_believed else f"release {record.name}, if it is gone"
    return Finding(
        kind=kind,
        cloud=record.cloud,
        group=record.group,
        name=record.name,
        machine_id=machine_id,
        provider_id=record.provider_id,
        state=record.state.value,
        since=iso(record.state_since),
        detail=detail,
        hint=hint,
    )
