"""Tracks the operations of one connection: which were never sent, which may have been, and when each times out.

The deadline of an operation begins when it is sent. A create or delete that the driver has not answered is not sent a
second time on the same connection, also after its deadline: the second caller gets the answer to the first message.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from cloudgraft.dock.hub.outbox import Lane, Outbox
from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.dock.protocol.codes import Code, Verb, error_of
from cloudgraft.dock.protocol.dialect import Dialect, Reply, Tombstones, free_number
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Operation, Result
from cloudgraft.dock.protocol.texts import error_of_text
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)

log = logging.getLogger("cloudgraft.dock")

# -- Deadlines ---------------------------------------------------------------------------------------------------------
# One timer serves many operations: most end in time, and cost nothing.


_TIDY_AT: Final = 1000  # entries, most of which may be done


class Deadlines:
    """Calls back at the deadline of each number that is still pending. Forgets the others soon."""

    def __init__(self, pending: Container[int], due: Callable[[int, float], None]) -> None:
        """``due`` gets the number and the time that :meth:`add` returned for it."""
        self._pending = pending
        self._due = due
        self._loop = asyncio.get_running_loop()  # cached: each lookup is a system call
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tidy_at = _TIDY_AT

    def add(self, number: int, seconds: float) -> float:
        """Sets a deadline this many seconds from now; returns it in the loop's time."""
        when = self._loop.time() + seconds
        heapq.heappush(self._heap, (when, number))
        if self._timer is None or when < self._timer.when():
            self._set_timer(when)
        if len(self._heap) > self._tidy_at:
            self._heap = [entry for entry in self._heap if entry[1] in self._pending]
            heapq.heapify(self._heap)
            self._tidy_at = max(_TIDY_AT, 2 * len(self._heap))
        return when

    def close(self) -> None:
        """Cancels all deadlines."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][1] not in self._pending):
            when, number = heapq.heappop(self._heap)
            if when <= now and number in self._pending:
                self._due(number, when)
        if self._heap:
            self._set_timer(self._heap[0][0])


# -- Pending operations ------------------------------------------------------------------------------------------------


_MOST_KEPT: Final = 1000  # operations without an answer, and late results
_LANES: Final = {Verb.CREATE: Lane.CREATE, Verb.DELETE: Lane.DELETE}
_Change = tuple[Verb, str, str]  # what a create or delete is about: its class, and its machine's name or id


@dataclass(slots=True, eq=False)
class Wait:
    """One operation, with a waiting caller until its deadline."""

    number: int
    operation: Operation
    future: asyncio.Future[Reply]
    on_sent: Callable[[], None]
    since: float = 0.0  # the loop's time at which it was queued
    due: float = 0.0  # the loop's time at which it times out
    sent: bool = False  # handed to the connection: from then on the outcome is unknown until the result arrives


class Waiting:
    """All operations of one connection."""

    def __init__(
        self,
        info: DriverInfo,
        dialect: Dialect,
        outbox: Outbox,
        tombstones: Tombstones,
        settings: HubSettings,
        *,
        cancel: Callable[[int], None],
        late: Callable[[], None],
    ) -> None:
        """``cancel`` tells the driver that a caller has left; ``late`` is called when its result came just then."""
        self._info = info
        self._most = info.max_in_flight
        self._dialect = dialect
        self._numbers = dialect.numbers()
        self._outbox = outbox
        self._tombstones = tombstones
        self._settings = settings
        self._cancel = cancel
        self._late = late
        self._loop = asyncio.get_running_loop()  # cached: each lookup is a system call
        self._waits: dict[int, Wait] = {}
        self._changes: dict[_Change, Wait] = {}  # creates and deletes without an answer
        self._overdue: OrderedDict[int, Wait] = OrderedDict()  # sent, and given up; the driver may still answer
        self._made_late: OrderedDict[_Change, tuple[float, Reply]] = OrderedDict()  # until when they are kept
        self._deadlines = Deadlines(self._waits, self._give_up)
        self._losses = Deadlines(self._overdue, self._lose)
        self._empty = asyncio.Event()
        self._empty.set()
        self.in_flight = 0  # sent, and the driver still works on it

    def enter(self, operation: Operation, max_bytes: int, on_sent: Callable[[], None]) -> Wait:
        """Registers the operation, and only then queues it, so that its result always finds it.

        ``on_sent`` is called when it is sent. Raises UnavailableError when the queue is full, and other errors when it
        cannot be sent: then nothing was sent.
        """
        change = _change(operation)
        earlier = None if change is None else self._earlier(change, operation, on_sent)
        if earlier is not None:
            return earlier
        number = free_number(self._numbers, self._waits, self._tombstones, self._info.key)
        data = self._encoded(number, operation)
        if len(data) > max_bytes:
            raise InvalidArgumentError(f"this {operation.verb.value} has {len(data)} bytes: {max_bytes} are allowed")
        wait = Wait(number, operation, self._loop.create_future(), on_sent, since=self._loop.time())
        self._add(wait)
        if not self._outbox.put(number, data, _LANES.get(operation.verb, Lane.READ)):
            self._drop(wait)
            raise UnavailableError(
                f"too many operations wait for the driver for {self._info.key}: nothing was sent; try again later"
            )
        if not self._dialect.cancels and operation.max_in_flight > self._most:
            self._most = operation.max_in_flight
            self._regulate()
        # Not asyncio.timeout(): it would cancel the caller, and lose a reply that comes at the same moment.
        wait.due = self._deadlines.add(number, self._settings.queue)
        return wait

    def _earlier(self, change: _Change, operation: Operation, on_sent: Callable[[], None]) -> Wait | None:
        """An earlier message for the same change, whose answer is also that of this operation; None: there is none."""
        until, reply = self._made_late.pop(change, (0.0, None))
        if reply is not None and self._loop.time() < until:
            answered = Wait(reply.number, operation, self._loop.create_future(), on_sent, sent=True)
            answered.future.set_result(reply)
            return answered
        first = self._changes.get(change)
        if first is None:
            return None
        if self._overdue.pop(first.number, None) is None:  # its own caller still waits
            verb = operation.verb.value
            text = f"another {verb} of {change[2]} is under way at the driver for {self._info.key}"
            error = DeadlineError if operation.verb is Verb.CREATE else ConflictError
            raise error(f"{text}: this one was not sent")
        self._tombstones.take(self._info.key, first.number)
        again = Wait(first.number, operation, self._loop.create_future(), on_sent, sent=True)
        self._add(again)
        if self._dialect.cancels:
            self._change_in_flight(1)
        again.due = self._deadlines.add(again.number, operation.timeout.total_seconds())
        on_sent()
        return again

    def _add(self, wait: Wait) -> None:
        self._waits[wait.number] = wait
        self._empty.clear()
        change = _change(wait.operation)
        if change is not None:
            self._changes[change] = wait

    def _encoded(self, number: int, operation: Operation) -> bytes:
        try:
            return self._dialect.operation(number, operation, self._info)
        except ValueError as error:  # half a character, or a number that does not fit the wire format
            raise InvalidArgumentError(
                f"this {operation.verb.value} cannot be written as a message ({type(error).__name__})"
            ) from None

    def _give_up(self, number: int, due: float) -> None:
        wait = self._waits[number]
        if wait.due == due and not wait.future.done():  # not an earlier operation with the same number
            error = self._too_late(wait)
            self._put_aside(wait)
            self._fail(wait, error)

    def _too_late(self, wait: Wait) -> CloudgraftError:
        verb, seconds = wait.operation.verb.value, wait.operation.timeout.total_seconds()
        if not wait.sent:
            return UnavailableError(
                f"the driver for {self._info.key} was busy for {self._settings.queue:g} s: {verb} was not sent, and "
                "nothing was done"
            )
        return DeadlineError(
            f"the driver for {self._info.key} did not answer in {seconds:g} s: whether {verb} was done is unknown"
        )

    def abandon(self, wait: Wait) -> None:
        """Gives up the operation: its caller has left."""
        if wait.future.done() and not wait.future.cancelled():
            if wait.future.exception() is None:
                self._late()
            return
        self._put_aside(wait)
        if wait.sent:
            self._cancel(wait.number)

    def _put_aside(self, wait: Wait) -> None:
        """Keeps an operation that was sent and has no caller any more: the driver may still work on it, and answer."""
        if not wait.sent:
            self._drop(wait)
            return
        self._tombstones.add(self._info.key, wait.number)
        if self._waits.pop(wait.number, None) is None:
            return
        if self._dialect.cancels:
            self._change_in_flight(-1)
        self._overdue[wait.number] = wait
        wait.due = self._losses.add(wait.number, self._settings.lost)
        if len(self._overdue) > _MOST_KEPT:
            self._forget(next(iter(self._overdue.values())))
        if not self._waits:
            self._empty.set()

    def _lose(self, number: int, due: float) -> None:
        wait = self._overdue[number]
        if wait.due == due:
            what = "a driver has not answered an operation for so long that it counts as lost"
            extra = {"driver": str(self._info.key), "operation": wait.operation.verb.value}
            log.warning("%s: other operations are sent again", what, extra=extra)
            self._forget(wait)

    def _forget(self, wait: Wait) -> None:
        """The driver does not work on this operation any more."""
        del self._overdue[wait.number]
        self._end_change(wait)
        if not self._dialect.cancels:
            self._change_in_flight(-1)

    def mark_sent(self, number: int) -> None:
        """Marks the operation as handed to the connection. Its deadline begins."""
        wait = self._waits[number]
        wait.sent = True
        wait.due = self._deadlines.add(number, wait.operation.timeout.total_seconds())
        wait.on_sent()
        self._change_in_flight(1)

    def settle(self, reply: Reply) -> bool:
        """Delivers the reply to its caller; False when no caller waits."""
        wait = None if reply.foreign else self._waits.get(reply.number)
        if wait is None or not wait.sent:  # a reply to an operation that was not sent is invalid
            if not reply.foreign and reply.number in self._overdue:
                self._answer_late(self._overdue[reply.number], reply)
            return False
        self._drop(wait)
        if not wait.future.done():
            wait.future.set_result(reply)
        return True

    def _answer_late(self, wait: Wait, reply: Reply) -> None:
        """Keeps a machine that was created late for a second create: lists may not show it for a while."""
        self._forget(wait)
        change = _change(wait.operation)
        if change is not None and wait.operation.verb is Verb.CREATE and self._is_made(wait.operation, reply):
            self._made_late[change] = (self._loop.time() + self._settings.lost, reply)
            if len(self._made_late) > _MOST_KEPT:
                self._made_late.popitem(last=False)

    def _is_made(self, operation: Operation, reply: Reply) -> bool:
        try:
            result = self._dialect.result(reply, operation)
        except InternalError:
            return False
        return isinstance(result, Result) and result.status.code is Code.OK and isinstance(result.answer, Machine)

    def fail_unsent(self, why: str) -> None:
        """Fails the operations that were never handed to the connection: it is certain that nothing was done."""
        for wait in [wait for wait in self._waits.values() if not wait.sent]:
            self._drop(wait)
            verb = wait.operation.verb.value
            self._fail(wait, UnavailableError(f"{why}: {verb} was not sent to the driver for {self._info.key}"))

    def fail_all(self, why: str) -> None:
        """Fails all operations: the connection has ended."""
        self.fail_unsent(why)
        self._deadlines.close()
        self._losses.close()
        for wait in list(self._waits.values()):
            self._tombstones.add(self._info.key, wait.number)
            self._drop(wait)
            verb = wait.operation.verb.value
            self._fail(
                wait,
                DeadlineError(f"{why} in the middle of {verb} ({self._info.key}): whether it was done is unknown"),
            )

    @staticmethod
    def _fail(wait: Wait, error: CloudgraftError) -> None:
        if not wait.future.done():
            wait.future.set_exception(error)

    @property
    def queued_for(self) -> float:
        """Seconds for which the oldest operation has been waiting to be sent. Thread-safe."""
        since = [wait.since for wait in list(self._waits.values()) if not wait.sent]
        return self._loop.time() - min(since) if since else 0.0

    async def empty(self) -> None:
        """Returns when no caller waits."""
        await self._empty.wait()

    def _drop(self, wait: Wait) -> None:
        if self._waits.pop(wait.number, None) is None:
            return
        self._end_change(wait)
        if wait.sent:
            self._change_in_flight(-1)
        else:
            self._outbox.remove(wait.number)
        if not self._waits:
            self._empty.set()

    def _end_change(self, wait: Wait) -> None:
        change = _change(wait.operation)
        if change is not None and self._changes.get(change) is wait:
            del self._changes[change]

    def _change_in_flight(self, by: int) -> None:
        self.in_flight += by
        self._regulate()

    def _regulate(self) -> None:
        if self._most:
            take = self.in_flight < self._most
            if take is not self._outbox.open:
                self._outbox.take_operations(take=take)


def _change(operation: Operation) -> _Change | None:
    """What a create or delete is about; None for a read, which may always be repeated."""
    if operation.verb is Verb.CREATE and operation.spec is not None:
        return Verb.CREATE, operation.class_ref.name, operation.spec.name
    if operation.verb is Verb.DELETE and operation.machine is not None:
        return Verb.DELETE, operation.class_ref.name, operation.machine.machine_id
    return None


def is_unclassified(result: Result) -> bool:
    """Whether a create failed with a text that is in no table, so that the autoscaler does not hear what is wrong."""
    status = result.status
    if status.code is Code.OK or not status.is_plain:
        return False
    return error_of_text(status.message, Verb.CREATE) is InternalError


def answer_or_error(result: Result, operation: Operation) -> Answer:
    """Returns the result, or raises the error that the driver reported.

    A machine that comes with an error may or may not exist: the outcome is unknown, whatever the code. A text without a
    code leaves that open too. But the driver says that it failed, so that is final.
    """
    status = result.status
    if status.code is Code.OK:  # for every verb: no lookup needed
        return result.answer
    error = error_of(status.code, status.message, operation.verb, status.retry_after)
    if error is None:
        return result.answer
    if isinstance(result.answer, Machine):
        raise DeadlineError(
            f"the driver says that create failed ({error.message}), and names the machine "
            f"{result.answer.machine_id!r}: whether there is one is unknown"
        )
    if status.is_plain:
        plain = error_of_text(status.message, operation.verb)(status.message)
        raise plain.as_final() if operation.verb is Verb.CREATE else plain
    raise error
