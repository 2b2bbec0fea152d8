"""Whatever a record holds, both databases give it back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.identity import Configured, settle_owner
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.maintenance.legality import RowJudge
from cloudgraft.store.records import (
    Change,
    CloudRecord,
    ErrorRecord,
    Event,
    GroupRecord,
    LearnedRecord,
    MachineRecord,
    PauseRecord,
    Presence,
    Progress,
    Scope,
    State,
)
from cloudgraft.store.rows import columns, machine_row
from cloudgraft.store.schema import machines
from cloudgraft.store.statements import read_contents, read_events, write_change
from tests.store.places import Place

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
_TIME = st.floats(allow_nan=False, allow_infinity=False)
_COUNT = st.integers(min_value=0, max_value=2**62)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_OBJECT = st.dictionaries(st.text(max_size=8), _JSON, max_size=3)
_ERROR = st.builds(ErrorRecord, code=_TEXT, message=_TEXT, error_class=st.sampled_from([1, 99]))
_MACHINE = st.builds(
    MachineRecord,
    name=_NAME,
    group=_TEXT,
    cloud=_TEXT,
    placeholder=_TEXT,
    state=st.sampled_from(State),
    presence=st.sampled_from(Presence),
    settings=_OBJECT,
    tags=st.dictionaries(_TEXT, _TEXT, max_size=3),
    requested_at=_TIME,
    state_since=_TIME,
    ordered_at=st.none() | _TIME,
    attempt_at=st.none() | _TIME,
    attempts=_COUNT,
    gone_at=st.none() | _TIME,
    machine_id=_TEXT,
    provider_id=_TEXT,
    error=st.none() | _ERROR,
    hourly=st.none() | st.decimals(allow_nan=False),
    currency=_TEXT,
    is_adopted=st.booleans(),
    replaces=_TEXT,
    version=st.just(1),
    is_marked=st.booleans(),
    created_at=st.none() | _TIME,
)
_GROUP = st.builds(GroupRecord, id=_NAME, cloud=_TEXT, spec=_OBJECT, configured=st.booleans())
_LEARNED = st.builds(LearnedRecord, group=_NAME, settings=_OBJECT, since=_TIME, facts=_OBJECT)
_PAUSE = st.builds(PauseRecord, scope=st.sampled_from(Scope), name=_NAME, since=_TIME, reason=_TEXT)
_EVENT = st.builds(
    Event,
    at=_TIME,
    kind=_NAME,
    message=_TEXT,
    cloud=_TEXT,
    group=_TEXT,
    machine=_TEXT,
    state=st.none() | st.sampled_from(State),
    data=_OBJECT,
)
_CHANGE = st.builds(
    Change,
    machines=st.lists(_MACHINE, max_size=4, unique_by=lambda record: record.name),
    groups=st.lists(_GROUP, max_size=3, unique_by=lambda record: record.id),
    learned=st.lists(_LEARNED, max_size=3, unique_by=lambda record: record.group),
    clouds=st.lists(
        st.builds(CloudRecord, name=_NAME, adopted_at=_TIME), max_size=3, unique_by=lambda record: record.name
    ),
    pauses=st.lists(_PAUSE, max_size=3, unique_by=lambda record: (record.scope, record.name)),
    events=st.lists(_EVENT, max_size=4),
    progress=st.none() | st.builds(Progress, at=_TIME, boot_id=_TEXT, boot_time=_TIME),
)


class _UndoError(Exception):
    """Ends a transaction."""


@contextmanager
def _undone(database: Database) -> Iterator[Connection]:
    """A transaction that leaves the database as it was."""
    with suppress(_UndoError), database.transaction(Mode.WRITE) as connection:
        yield connection
        raise _UndoError


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    found = place.database()
    found.open(Access.SERVE)
    settle_owner(found, Configured())
    yield found
    found.close()


# All times are before 1970. Which values are tried depends on what else is loaded, so this one is named.
@example(
    change=Change(
        machines=[],
        events=[Event(at=-1.0, kind="told", message="")],
        clouds=[CloudRecord(name="lab", adopted_at=-1.0)],
    )
)
@given(change=_CHANGE)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_what_is_written_is_what_is_read(database: Database, change: Change) -> None:
    with _undone(database) as connection:
        write_change(connection, change)
        contents, events = read_contents(connection), read_events(connection, EventQuery(limit=1000))
        assert _by_name(contents.machines) == _by_name(change.machines)
        assert {record.id: record for record in contents.groups} == {record.id: record for record in change.groups}
        assert {r.group: r for r in contents.learned} == {r.group: r for r in change.learned}
        assert {record.name: record for record in contents.clouds} == {r.name: r for r in change.clouds}
        assert {(r.scope, r.name): r for r in contents.pauses} == {(r.scope, r.name): r for r in change.pauses}
        assert contents.progress == change.progress
        assert contents.latest_at == max(0.0, *_times(change))
        assert [replace(event, seq=0) for event in events] == list(change.events)


@given(before=_MACHINE, after=_MACHINE)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_machine_that_is_written_again_keeps_nothing_of_what_it_was(
    database: Database, before: MachineRecord, after: MachineRecord
) -> None:
    changed = replace(after, name=before.name, version=2)
    with _undone(database) as connection:
        write_change(connection, Change(machines=[before]))
        write_change(connection, Change(machines=[changed]))
        assert list(read_contents(connection).machines) == [changed]


@given(record=_MACHINE)
def test_no_row_of_ours_has_a_value_of_a_wrong_type(record: MachineRecord) -> None:
    row = machine_row(record)
    problem = RowJudge().problem(machines, [row[name] for name in columns(machines)])
    assert "cannot be" not in problem


def _times(change: Change) -> Iterator[float]:
    for record in change.machines:
        times = (record.requested_at, record.state_since, record.ordered_at, record.attempt_at, record.gone_at)
        yield from (time for time in times if time is not None)
    yield from (record.since for record in change.learned)
    yield from (record.since for record in change.pauses)
    yield from (record.adopted_at for record in change.clouds)
    yield from (event.at for event in change.events)
    yield 0.0 if change.progress is None else change.progress.at


def _by_name(records: object) -> dict[str, MachineRecord]:
    assert isinstance(records, list)
    return {record.name: record for record in records}
