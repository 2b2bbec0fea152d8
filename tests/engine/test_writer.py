"""Journal first, then memory, then the answer; and a write of unknown outcome is settled before the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.resolution import as_group
from cloudgraft.engine.machines.states import begin, is_released, move
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.errors import ConflictError, InternalError
from cloudgraft.store.journal import EventQuery, FencedError, Journal, JournalUnavailableError
from cloudgraft.store.records import Change, Contents, Event, MachineRecord, Presence, State
from cloudgraft.store.sql import SqlJournal
from tests.conditions import no_error_is_lost, until
from tests.engine.engine_rig import HandClock
from tests.engine.makers import NOW, a_record, a_spec


class ShakyJournal(Journal):
    """A real journal whose next write can fail, before or after it is on disk."""

    def __init__(self, inner: Journal) -> None:
        self.inner = inner
        self.fails: BaseException | None = None
        self.is_written_first = False
        self.writes = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def fail(self, error: BaseException, *, is_written_first: bool = False) -> None:
        self.fails, self.is_written_first = error, is_written_first

    async def open(self) -> None:
        await self.inner.open()

    async def load(self) -> Contents:
        return await self.inner.load()

    async def write(self, change: Change) -> None:
        self.writes += 1
        await self.gate.wait()
        error, self.fails = self.fails, None
        if error is None or self.is_written_first:
            await self.inner.write(change)
        if error is not None:
            raise error

    async def events(self, query: EventQuery) -> Sequence[Event]:
        return await self.inner.events(query)

    async def purge(self, *, gone_before: float, events_before: float, limit: int = 1000) -> int:
        return await self.inner.purge(gone_before=gone_before, events_before=events_before, limit=limit)

    async def close(self) -> None:
        await self.inner.close()


class Desk:
    """A writer, what it writes to, and what it told."""

    def __init__(self, journal: ShakyJournal) -> None:
        self.journal = journal
        self.fleet = Fleet()
        self.fenced: list[str] = []
        self.published: list[Event] = []
        self.reloads = 0
        self.writer = Writer(journal, self.fleet, HandClock(NOW), reload=self.reload, on_fenced=self.fenced.append)
        self.writer.subscribe(self.published.append)
        self.reload(Contents(cluster_id="abc"))

    def reload(self, contents: Contents) -> None:
        self.reloads += 1
        self.fleet.load(contents, [as_group(a_spec("g"))])

    async def write(self, *records: MachineRecord, event: str = "") -> Change:
        events = (happened(event, NOW, "it happened"),) if event else ()
        return await self.writer.write(lambda: Change(machines=records, events=events))

    async def stored(self) -> dict[str, MachineRecord]:
        return {record.name: record for record in (await self.journal.load()).machines}

    async def agrees(self) -> bool:
        return self.fleet.machines == await self.stored()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    journal = ShakyJournal(SqlJournal.sqlite(tmp_path / "journal.db"))
    await journal.open()
    yield Desk(journal)
    await journal.close()


def a_new(name: str = "m-1", state: State = State.REQUESTED, **changes: object) -> MachineRecord:
    return begin(replace(a_record(name, state=state), **changes))  # type: ignore[arg-type]  # a test names fields of its own choice


AMBIGUOUS = JournalUnavailableError("the disk went away while it was written", is_ambiguous=True)


async def test_what_is_written_is_in_the_journal_in_memory_and_told(desk: Desk) -> None:
    await desk.write(a_new(), event="increase")
    assert desk.fleet.groups["g"].target == 1
    assert await desk.agrees()
    assert [event.kind for event in desk.published] == ["increase"]
    assert [e.kind for e in await desk.journal.events(EventQuery())] == ["increase"]


async def test_of_many_events_each_is_told_once_and_in_order(desk: Desk) -> None:
    """A line in the log takes a while, so that not all are written before the answer; but none is left out."""
    messages = [str(number) for number in range(205)]
    many = Change(events=[happened("increase", NOW, message) for message in messages[:200]])
    await desk.writer.write(lambda: many)
    assert len(desk.published) < 200
    few = Change(events=[happened("increase", NOW, message) for message in messages[200:]])
    await desk.writer.write(lambda: few)
    await desk.writer.drain()
    assert [event.message for event in desk.published] == messages


async def test_a_subscriber_that_fails_does_not_keep_later_events_from_the_others(desk: Desk) -> None:
    def fail(event: Event) -> None:
        if event.message == "0":
            raise RuntimeError("a bug in a subscriber")

    desk.writer.subscribe(fail)
    with pytest.raises(RuntimeError):
        await desk.writer.write(lambda: Change(events=[happened("increase", NOW, str(n)) for n in range(50)]))
    await desk.writer.drain()
    assert [event.message for event in desk.published] == [str(number) for number in range(50)]


async def test_memory_changes_only_after_the_journal_has_it(desk: Desk) -> None:
    desk.journal.gate.clear()
    writing = asyncio.create_task(desk.write(a_new(), event="increase"))
    await until(lambda: desk.journal.writes == 1, what="the write begins")
    assert desk.fleet.machines == {}
    assert desk.published == []
    desk.journal.gate.set()
    await writing
    assert list(desk.fleet.machines) == ["m-1"]


async def test_what_the_journal_refuses_changes_nothing(desk: Desk) -> None:
    desk.journal.fail(JournalUnavailableError("the disk is full"))
    with pytest.raises(JournalUnavailableError, match="full"):
        await desk.write(a_new(), event="increase")
    assert (desk.fleet.machines, desk.published) == ({}, [])
    assert desk.writer.trouble == "the disk is full"
    await desk.write(a_new())
    assert desk.writer.trouble == ""
    assert await desk.agrees()


async def test_each_plan_is_made_when_its_turn_comes(desk: Desk) -> None:
    """Two callers that both look first would both take the last place."""

    def one_more() -> Change:
        count = len(desk.fleet.machines)
        return Change(machines=(a_new(f"m-{count}"),) if count < 3 else ())

    await asyncio.gather(*(desk.writer.write(one_more) for _ in range(10)))
    assert sorted(desk.fleet.machines) == ["m-0", "m-1", "m-2"]
    assert desk.journal.writes == 3, "an empty change is no write"


async def test_a_plan_that_raises_changes_nothing_and_holds_up_nobody(desk: Desk) -> None:
    def broken() -> Change:
        raise InternalError("a bug")

    with pytest.raises(InternalError, match="a bug"):
        await desk.writer.write(broken)
    assert desk.writer.trouble == ""
    await desk.write(a_new())
    assert await desk.agrees()


async def test_a_caller_that_gives_up_does_not_undo_what_has_begun(desk: Desk) -> None:
    """T7: the outcome is "done once", and memory shows it."""
    desk.journal.gate.clear()
    writing = asyncio.create_task(desk.write(a_new()))
    await until(lambda: desk.journal.writes == 1, what="the write begins")
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    desk.journal.gate.set()
    await desk.writer.drain()
    assert list(desk.fleet.machines) == ["m-1"]
    assert await desk.agrees()


async def test_an_intent_whose_caller_was_denied_is_taken_back(desk: Desk) -> None:
    """R45: on an error nothing was started, also when the write was on disk after all."""
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())
    await desk.writer.probe()
    stored = (await desk.stored())["m-1"]
    assert (stored.state, stored.presence, stored.gone_at, stored.version) == (State.GONE, Presence.NONE, NOW, 2)
    assert desk.fleet.groups["g"].target == 0
    assert await desk.agrees()
    assert "undone" in [e.kind for e in await desk.journal.events(EventQuery())]


async def test_a_deletion_whose_caller_was_denied_is_taken_back(desk: Desk) -> None:
    """R54: the autoscaler takes its taint off the node, and pods come back to it."""
    running = a_new(state=State.BOOTING, presence=Presence.PRESENT, machine_id="i-1", provider_id="sim://1")
    await desk.write(running)
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(move(running, State.DELETING, NOW))
    await desk.write(a_new("m-2"))
    assert (await desk.stored())["m-1"] == replace(running, version=3)
    assert desk.fleet.groups["g"].target == 2
    assert await desk.agrees()


async def test_a_machine_that_was_found_in_a_cloud_is_not_struck_out_again(desk: Desk) -> None:
    """Nobody was denied anything, and to forget it would be to lose it."""
    found = a_new(state=State.BOOTING, presence=Presence.PRESENT, machine_id="i-1")
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(found)
    await desk.writer.probe()
    assert (await desk.stored())["m-1"] == found
    assert await desk.agrees()


async def test_a_machine_whose_adoption_was_denied_is_nobody_elses_again(desk: Desk) -> None:
    """The operator was told that it failed. It must neither stay ours, nor be deleted as one that came back."""
    adopted = a_new(state=State.BOOTING, presence=Presence.PRESENT, machine_id="i-1", is_adopted=True)
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(adopted)
    await desk.writer.probe()
    stored = (await desk.stored())["m-1"]
    assert (stored.state, is_released(stored), stored.version) == (State.GONE, True, 2)
    assert desk.fleet.groups["g"].target == 0
    assert await desk.agrees()


@pytest.mark.parametrize("error", [AMBIGUOUS, RuntimeError("a bug in the journal")], ids=["ambiguous", "unexpected"])
async def test_a_write_in_doubt_that_never_came_is_simply_not_there(desk: Desk, error: Exception) -> None:
    await desk.write(a_new())
    desk.journal.fail(error)
    with pytest.raises(type(error)):
        await desk.write(a_new("m-2"))
    assert desk.writer.trouble
    await desk.write(a_new("m-3"))
    assert sorted(desk.fleet.machines) == ["m-1", "m-3"]
    assert await desk.agrees()


async def test_doubts_stay_until_the_journal_can_be_read(desk: Desk) -> None:
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())
    for _ in range(2):  # taking it back fails, too
        desk.journal.fail(JournalUnavailableError("still away"))
        with pytest.raises(JournalUnavailableError, match="still away"):
            await desk.write(a_new("m-2"))
        assert desk.fleet.machines == {}
    await desk.write(a_new("m-2"))
    assert desk.fleet.groups["g"].target == 1
    assert await desk.agrees()


async def test_taking_back_may_itself_be_in_doubt(desk: Desk) -> None:
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new("m-2"))
    await desk.write(a_new("m-3"))
    assert {name: record.state for name, record in desk.fleet.machines.items()} == {
        "m-1": State.GONE,
        "m-3": State.REQUESTED,
    }
    assert await desk.agrees()


async def test_what_somebody_else_wrote_is_read_before_anything_is_planned(desk: Desk) -> None:
    await desk.write(a_new())
    theirs = move(desk.fleet.machines["m-1"], State.CREATING, NOW)
    await desk.journal.inner.write(Change(machines=(theirs,)))
    with pytest.raises(ConflictError):
        await desk.write(move(desk.fleet.machines["m-1"], State.GONE, NOW))
    seen: list[State] = []

    def plan() -> Change:
        seen.append(desk.fleet.machines["m-1"].state)
        return Change()

    await desk.writer.write(plan)
    assert seen == [State.CREATING]


async def test_a_write_that_is_refused_because_another_leads_ends_our_reign(desk: Desk) -> None:
    desk.journal.fail(FencedError("replica-2 leads"))
    with pytest.raises(FencedError):
        await desk.write(a_new())
    assert desk.fenced == ["replica-2 leads"]
    assert desk.fleet.machines == {}


@pytest.mark.parametrize("error", [FencedError("another replica leads"), RuntimeError("bug")])
async def test_a_write_that_fails_after_its_caller_has_left_loses_no_error(
    desk: Desk, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a leader is fenced: its workers are cancelled while they write."""
    with no_error_is_lost():
        desk.journal.gate.clear()
        desk.journal.fail(error)
        writing = asyncio.ensure_future(desk.write(a_new()))
        await until(lambda: desk.journal.writes == 1)
        writing.cancel()
        await asyncio.wait({writing})
        desk.journal.gate.set()
        await desk.writer.drain()
        await asyncio.sleep(0)
    assert desk.fenced == (["another replica leads"] if isinstance(error, FencedError) else [])
    assert ("after its caller had given up" in caplog.text) == isinstance(error, RuntimeError)


async def test_a_change_that_another_leader_has_served_is_not_taken_back(desk: Desk) -> None:
    desk.journal.fail(AMBIGUOUS, is_written_first=True)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())
    desk.writer.forget_doubts()
    await desk.write(a_new("m-2"))
    assert desk.fleet.groups["g"].target == 2
    assert await desk.agrees()


async def test_a_doubt_that_another_leader_settles_ends_our_reign(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.journal.fail(AMBIGUOUS)
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())

    async def refuse() -> Contents:
        raise FencedError("another replica leads")

    monkeypatch.setattr(desk.journal, "load", refuse)
    with pytest.raises(FencedError):
        await desk.write(a_new("m-2"))
    assert desk.fenced == ["another replica leads"]


async def test_a_probe_writes_only_when_there_was_trouble(desk: Desk) -> None:
    await desk.writer.probe()
    assert desk.journal.writes == 0
    desk.journal.fail(JournalUnavailableError("the disk is full"))
    with pytest.raises(JournalUnavailableError):
        await desk.write(a_new())
    await desk.writer.probe()
    assert desk.writer.trouble == ""
    assert [event.kind for event in desk.published] == ["journal_recovered"]
