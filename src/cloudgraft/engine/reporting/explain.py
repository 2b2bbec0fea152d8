"""Explains why a group did or did not scale: diagnosis, requests, machines in trouble, and recent events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.new_records import KINDS
from cloudgraft.engine.reporting.diagnosis import Case, Reason, reasons
from cloudgraft.engine.reporting.report import (
    GroupReport,
    MachineReport,
    cloud_report,
    group_report,
    machine_report,
)
from cloudgraft.engine.reporting.report_json import iso
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.journal import EventQuery, JournalUnavailableError
from cloudgraft.store.records import Event, MachineRecord, State

_ASKED: Final = ("increase", "delete", "decrease")
_OF_ITS_CLOUD: Final = (
    "cloud_down",
    "cloud_up",
    "cloud_ready",
    "blocked",
    "breaker",
    "breaker_closed",
    "paused",
    "resumed",
)
_OF_ALL: Final = ("journal_recovered", "leader", "refused_config")
_FAILURES_AMONG: Final = 500  # events of machines' histories to search for failures
_MOST_TROUBLED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReport:
    """An event, perhaps of several machines at once."""

    at: str
    kind: str
    message: str
    machine: str
    state: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An explanation. For a machine, the events are its history and the reasons are empty."""

    subject: str  # "group" or "machine"
    id: str
    verdict: str
    reasons: Sequence[Reason] = ()
    group: GroupReport | None = None
    machine: MachineReport | None = None
    asked: Sequence[EventReport] = ()
    troubled: Sequence[MachineReport] = ()
    events: Sequence[EventReport] = ()
    events_trouble: str = ""  # why the journal could not be read


async def explain(engine: Engine, subject: str, *, limit: int = 30) -> Explanation:
    """Explains a group, or a machine by our name for it, its id or its providerID."""
    left_out = engine.left_out()
    if subject in engine.fleet.groups or subject in left_out:
        return await _explain_group(engine, subject, left_out.get(subject, ""), limit)
    return await _explain_machine(engine, subject, limit)


# -- a group -----------------------------------------------------------------------------------------------------------


async def _explain_group(engine: Engine, id_: str, left_out: str, limit: int) -> Explanation:
    trouble, asked, events = "", [], []
    report = group_report(engine, id_, left_out)
    try:
        asked = await _asked(engine, id_)
        events = await _timeline(engine, id_, report.cloud, limit)
    except JournalUnavailableError as error:
        trouble = error.message
    report = group_report(engine, id_, left_out)
    failed = _failed(engine, id_)
    found = reasons(_case(engine, report, failed, asked))
    return Explanation(
        subject="group",
        id=id_,
        verdict=found[0].what,
        reasons=found,
        group=report,
        asked=[_told(event) for event in asked],
        troubled=failed[:_MOST_TROUBLED],
        events=_merged(events)[-limit:],
        events_trouble=trouble,
    )


def _case(engine: Engine, report: GroupReport, failed: Sequence[MachineReport], asked: Sequence[Event]) -> Case:
    worker = engine.workers.get(report.cloud)
    group = engine.fleet.groups.get(report.id)
    price = group.spec.price.amount if group is not None and group.spec.price else None
    guard = engine.guard_usage.refusal(report.cloud, price) if group is not None else None
    increases = [event for event in asked if event.kind == "increase"]
    return Case(
        group=report,
        cloud=cloud_report(engine, worker) if worker is not None else None,
        machines=failed,
        trouble=engine.trouble(),
        guard=guard.message if guard is not None else "",
        asked_at=iso(increases[-1].at) if increases else "",
    )


def _failed(engine: Engine, id_: str) -> list[MachineReport]:
    group, now = engine.fleet.groups.get(id_), engine.clock.now()
    records = list(group.machines.values()) if group is not None else []
    return [machine_report(engine, r, now) for r in records if r.state is State.FAILED]


async def _asked(engine: Engine, id_: str) -> list[Event]:
    """The latest of each kind, oldest first."""
    queries = (EventQuery(group=id_, kinds=(kind,), limit=1) for kind in _ASKED)
    found = [event for query in queries for event in await engine.journal.events(query)]
    return sorted(found, key=lambda event: event.seq)


async def _timeline(engine: Engine, id_: str, cloud: str, limit: int) -> list[Event]:
    """Decisions and failures; the normal steps of machines are in their own histories."""
    decisions = tuple(kind for kind in KINDS if kind != "state")
    queries = [
        EventQuery(group=id_, kinds=decisions, limit=limit),
        EventQuery(kinds=_OF_ALL, limit=limit),
    ]
    if cloud:
        queries.append(EventQuery(cloud=cloud, kinds=_OF_ITS_CLOUD, limit=limit))
    found: dict[int, Event] = {}
    for query in queries:
        found |= {event.seq: event for event in await engine.journal.events(query) if event.group in ("", id_)}
    lines = await engine.journal.events(EventQuery(group=id_, only_states=True, limit=_FAILURES_AMONG))
    found |= {event.seq: event for event in lines if event.state is State.FAILED}
    return [found[seq] for seq in sorted(found)]


# -- a machine ---------------------------------------------------------------------------------------------------------


async def _explain_machine(engine: Engine, subject: str, limit: int) -> Explanation:
    record = find_machine(engine, subject)
    name, trouble = record.name if record is not None else subject, ""
    events: Sequence[Event] = ()
    try:
        events = await engine.journal.events(EventQuery(machine=name, limit=limit))
    except JournalUnavailableError as error:
        trouble = error.message
    if record is None and not events:
        engine.check_leader()  # a follower has no data
        groups = ", ".join(sorted({*engine.fleet.groups, *engine.left_out()})) or "none"
        why = f" ({trouble})" if trouble else ""
        raise NotFoundError(f"there is no group and no machine {subject!r}{why}; the groups are: {groups[:500]}")
    now = engine.clock.now()
    machine = machine_report(engine, record, now) if record is not None else None
    return Explanation(
        subject="machine",
        id=name,
        verdict=_verdict(record, machine, now),
        group=group_report(engine, record.group, "") if record is not None else None,
        machine=machine,
        events=[_told(event) for event in events],
        events_trouble=trouble,
    )


def find_machine(engine: Engine, subject: str) -> MachineRecord | None:
    """The machine by our name for it, its providerID or its id in its cloud."""
    fleet = engine.fleet
    by_name = fleet.machines.get(subject) or fleet.find(NodeRef(name="", provider_id=subject))
    by_id = (fleet.by_machine_id(cloud, subject) for cloud in fleet.active)
    return by_name or next((record for record in by_id if record is not None), None)


def _verdict(record: MachineRecord | None, report: MachineReport | None, now: float) -> str:
    if record is None or report is None:
        return "it is gone, and the journal has nothing of it but its history"
    minutes = (now - record.state_since) / 60
    said = f"it is {record.state.value} in group {record.group}, for {minutes:.0f} minutes"
    said += _of_its_node(report) if record.state is State.RUNNING else ""
    said = f"{said}: {record.error.message}" if record.error else said
    return f"{said}; {report.trouble}" if report.trouble else said


def _of_its_node(report: MachineReport) -> str:
    node = report.node
    if node is None:
        return ", and its node has not joined the cluster" if report.joined is False else ""
    if node.state == "left":
        return f", and its node {node.name} is not in the cluster any more"
    if node.unready_for is not None:
        return f", and its node {node.name} has not been ready for {node.unready_for / 60:.0f} minutes"
    return f", and its node {node.name} is {node.state}"


# -- events ------------------------------------------------------------------------------------------------------------


def _told(event: Event) -> EventReport:
    state = event.state.value if event.state is not None else ""
    return EventReport(at=iso(event.at), kind=event.kind, message=event.message, machine=event.machine, state=state)


def _merged(events: Iterable[Event]) -> list[EventReport]:
    """Merges equal events of many machines into one."""
    merged: list[EventReport] = []
    for report in map(_told, events):
        last = merged[-1] if merged else None
        if last is not None and (last.kind, last.message, last.state) == (report.kind, report.message, report.state):
            merged[-1] = replace(last, at=report.at, count=last.count + 1, machine="")
        else:
            merged.append(report)
    return merged
