"""Writes every change: to the journal first, then to memory; then the caller gets its answer.

Changes are made one after another. Each is planned when its turn comes, from the memory of that moment, so that a plan
never rests on something that has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.new_records import about, happened, level_of
from cloudgraft.sdk.common.event_loop import caller_has_left
from cloudgraft.sdk.common.tracing import step
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, InvalidArgumentError, UnavailableError
from cloudgraft.store.journal import FencedError, Journal, JournalUnavailableError
from cloudgraft.store.records import (
    Change,
    Contents,
    DeclaredGroup,
    Event,
    MachineRecord,
    Presence,
    RequestRecord,
    State,
)

log = logging.getLogger("cloudgraft.engine")

_RECOVERED: Final = "journal_recovered"  # the kind of the event

_TOLD: Final = 20  # events logged at a time


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A record whose write may or may not have been committed."""

    before: MachineRecord | None
    after: MachineRecord

    @property
    def can_be_undone(self) -> bool:
        """False for a machine that was found in a cloud: a record of it does no harm, its removal would.

        A machine that an operator adopted is ours only by that order, and the operator's request was answered with an
        error.
        """
        return self.before is not None or self.after.state is not State.BOOTING or self.after.is_adopted


class Writer:
    """Writes changes to the journal and then to memory."""

    def __init__(
        self,
        journal: Journal,
        fleet: Fleet,
        clock: Clock,
        *,
        reload: Callable[[Contents], None],
        on_fenced: Callable[[str], None],
    ) -> None:
        """``reload`` loads the journal into memory; ``on_fenced`` is called when another process leads."""
        self.trouble = ""  # why the journal cannot be written; empty while it can
        self.around: Callable[[Event], AbstractContextManager[None]] = lambda _: nullcontext()  # each event's log line
        self._journal = journal
        self._fleet = fleet
        self._clock = clock
        self._reload = reload
        self._on_fenced = on_fenced
        self._lock = asyncio.Lock()
        self._doubts: list[_Doubt] = []
        self._doubtful: list[
            RequestRecord
        ] = []  # requests that may have been written although their callers got an error
        self._declared: list[tuple[str, DeclaredGroup | None, DeclaredGroup | None]] = []  # id, before, after
        self._must_reload = False
        self._running: set[asyncio.Task[Change]] = set()
        self._subscribers: list[Callable[[Event], None]] = []
        self._untold: deque[Event] = deque()  # written, and not yet logged

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Calls ``subscriber`` with every event that was written."""
        self._subscribers.append(subscriber)

    async def write(self, plan: Callable[[], Change]) -> Change:
        """Makes the change that ``plan`` returns when its turn comes. If the plan raises, nothing changes.

        Cancelling the caller does not undo a change that has begun. A change of the autoscaler is not made if its
        caller has gone before that.
        """
        task = asyncio.create_task(self._in_turn(plan))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_for_its_caller)
            raise

    def forget_doubts(self) -> None:
        """Forgets writes of unknown outcome: another leader has acted on the journal since."""
        self._doubts, self._doubtful, self._declared = [], [], []

    async def probe(self) -> None:
        """Tries to write again, if the journal could not be written."""
        if self.trouble:
            await self.write(lambda: Change(events=(self._recovery(),)))

    def _recovery(self) -> Event:
        return happened(_RECOVERED, self._clock.now(), "the journal can be written again")

    async def drain(self) -> None:
        """Waits for changes that have begun, and logs all their events."""
        while self._running:
            await asyncio.wait(self._running)
        while self._untold:
            self._publish(self._untold.popleft())

    async def _in_turn(self, plan: Callable[[], Change]) -> Change:
        async with self._lock:
            try:
                await self._settle_doubts()
            except FencedError as error:
                self._on_fenced(error.message)
                raise
            if caller_has_left():  # while this waited for its turn
                raise UnavailableError("nothing was changed: the caller gave up before the journal was free")
            change = plan()
            if change.is_empty:
                return change
            if self.trouble and not any(event.kind == _RECOVERED for event in change.events):
                change = replace(change, events=(*change.events, self._recovery()))
            await self._commit(change)
            return change

    async def _commit(self, change: Change) -> None:
        try:
            with step("journal commit", {"cloudgraft.machines": len(change.machines)}):
                await self._journal.write(change)
        except CloudgraftError as error:
            self._note_failure(error, change)
            raise
        except Exception:
            self._doubt(change)
            self.trouble = "the journal failed in an unexpected way; the log has the details"
            raise
        self._fleet.apply(change)
        self.trouble = ""
        is_telling = bool(self._untold)
        self._untold += change.events
        if not is_telling:
            self._tell_some()

    def _note_failure(self, error: CloudgraftError, change: Change) -> None:
        if isinstance(error, InvalidArgumentError):
            return  # something in the change cannot be stored: the journal itself works
        if isinstance(error, FencedError):
            self._on_fenced(error.message)
        elif isinstance(error, ConflictError):
            self._must_reload = True
        elif isinstance(error, JournalUnavailableError) and error.is_ambiguous:
            self._doubt(change)
        if self.trouble != error.message:
            log.error("the journal cannot be written", extra={"error": error.message})
        self.trouble = error.message

    def _doubt(self, change: Change) -> None:
        self._must_reload = True
        self._doubts += [_Doubt(self._fleet.machines.get(record.name), record) for record in change.machines]
        self._doubtful += change.requests
        before = self._fleet.declared
        self._declared += [(group.id, before.get(group.id), group) for group in change.declared]
        self._declared += [(id_, before.get(id_), None) for id_ in change.undeclared]

    async def _settle_doubts(self) -> None:
        """After a write of unknown outcome: reads the journal again, and reverts changes whose callers got an error."""
        if not self._must_reload:
            return
        contents = await self._journal.load()
        stored = {record.name: record for record in contents.machines}
        landed = [doubt for doubt in self._doubts if stored.get(doubt.after.name) == doubt.after]
        undo = [_undone(doubt, self._clock.now()) for doubt in landed if doubt.can_be_undone]
        # A retry under the same key must make the change, and must not be taken for one that was already made.
        denied = [(r.caller, r.key) for r in self._doubtful if r in contents.requests]
        declared = {group.id: group for group in contents.declared}
        edited = [(id_, before) for id_, before, after in self._declared if declared.get(id_) == after]
        if undo or denied or edited:
            now = self._clock.now()
            change = Change(
                machines=undo,
                events=[about(r, now, "its caller had been told that it failed", kind="undone") for r in undo],
                removed_requests=denied,
                declared=[before for _, before in edited if before is not None],
                undeclared=[id_ for id_, before in edited if before is None],
            )
            await self._journal.write(change)
            contents = await self._journal.load()
        self._reload(contents)
        self._doubts, self._doubtful, self._declared, self._must_reload = [], [], [], False

    def _tell_some(self) -> None:
        """Logs a few events at a time: logging is slow, and no caller should wait for many lines."""
        try:
            for _ in range(min(_TOLD, len(self._untold))):
                self._publish(self._untold.popleft())
        finally:
            if self._untold:
                asyncio.get_running_loop().call_soon(self._tell_some)

    def _publish(self, event: Event) -> None:
        with self.around(event):
            log.log(
                level_of(event),
                event.message,
                extra={
                    "kind": event.kind,
                    **{
                        key: value
                        for key, value in (
                            ("cloud", event.cloud),
                            ("group", event.group),
                            ("machine", event.machine),
                            ("state", event.state.value if event.state else ""),
                        )
                        if value
                    },
                },
            )
        for subscriber in self._subscribers:
            subscriber(event)


def _tell_for_its_caller(task: asyncio.Task[Change]) -> None:
    """Logs the error of a change whose caller has gone. Errors of the journal were logged when they occurred."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, CloudgraftError):
        log.error("a change failed after its caller had given up", exc_info=error)


def _undone(doubt: _Doubt, now: float) -> MachineRecord:
    """The record before the write, because no action followed it.

    An adopted machine is released: with its record gone, the engine would delete it as a machine that came back.
    """
    version = doubt.after.version + 1
    if doubt.before is not None:
        return replace(doubt.before, version=version)
    presence = doubt.after.presence if doubt.after.is_adopted else Presence.NONE
    return replace(doubt.after, state=State.GONE, presence=presence, state_since=now, gone_at=now, version=version)
