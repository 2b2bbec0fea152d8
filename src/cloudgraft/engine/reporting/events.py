"""Reads events of the journal for operators, page by page, so that a client can follow them without loss."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.new_records import KINDS, level_of
from cloudgraft.engine.reporting.explain import find_machine
from cloudgraft.engine.reporting.report_json import iso
from cloudgraft.engine.unknown_names import unknown_group
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvent:
    """One event."""

    id: int  # grows in the order of the commits
    at: str
    kind: str
    level: str
    message: str
    cloud: str
    group: str
    machine: str
    state: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Some events, oldest first. The next page begins after ``cursor``."""

    events: Sequence[JournalEvent]
    cursor: int
    is_complete: bool  # there is no later event that matches, as of now


async def read_events(
    engine: Engine,
    *,
    group: str = "",
    machine: str = "",
    kinds: Sequence[str] = (),
    since_seconds: float | None = None,
    after: int | None = None,
    limit: int = 50,
) -> EventPage:
    """The newest events that match; with ``after``, the oldest ones that come after it. Any replica can answer."""
    for kind in kinds:
        if kind not in KINDS:
            like = nearest(kind, KINDS)
            hint = f"; did you mean {like!r}?" if like else ""
            raise InvalidArgumentError(f"there are no events of type {kind!r}{hint}")
    record = find_machine(engine, machine) if machine else None
    # Read before the events: one that is written in between has a larger number, and comes with the next page.
    latest = await engine.journal.events(EventQuery(limit=1))
    found = await engine.journal.events(
        EventQuery(
            group=group,
            machine=record.name if record is not None else machine,
            kinds=tuple(kinds),
            since=engine.clock.now() - since_seconds if since_seconds is not None else None,
            after=after,
            limit=limit,
        )
    )
    if not found and not after:
        _check_known(engine, group, machine, is_found=record is not None)
    is_complete = after is None or len(found) < limit
    ends = [event.seq for event in found[-1:]]
    if is_complete:
        ends += [event.seq for event in latest]
    return EventPage(events=[_told(event) for event in found], cursor=max(ends, default=0), is_complete=is_complete)


def _check_known(engine: Engine, group: str, machine: str, *, is_found: bool) -> None:
    """A name without events is perhaps a mistake. A replica that does not lead has no groups or machines to compare."""
    if group and group not in engine.fleet.groups and group not in engine.left_out():
        engine.check_leader()
        raise unknown_group(engine, group)
    if machine and not is_found:
        engine.check_leader()
        raise NotFoundError(f"the journal has no machine {machine!r}, and no event about one")


def _told(event: Event) -> JournalEvent:
    return JournalEvent(
        id=event.seq,
        at=iso(event.at),
        kind=event.kind,
        level=logging.getLevelName(level_of(event)).lower(),
        message=event.message,
        cloud=event.cloud,
        group=event.group,
        machine=event.machine,
        state=event.state.value if event.state is not None else "",
        data=event.data,
    )
