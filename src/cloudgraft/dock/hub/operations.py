"""Tracks the operations of one connection: which were never sent, which may have been, and when each times out."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from cloudgraft.dock.hub.outbox import Outbox
from cloudgraft.dock.protocol.codes import Code, error_of
from cloudgraft.dock.protocol.dialect import Dialect, Reply, Tombstones, free_number
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Operation, Result
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InvalidArgumentError, UnavailableError

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


@dataclass(slots=True, eq=False)
class Wait:
    """One operation with a waiting caller."""

    number: int
    operation: Operation
    future: asyncio.Future[Reply]
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
        self._cancel = cancel
        self._late = late
        self._loop = asyncio.get_running_loop()  # cached: each lookup is a system call
        self._waits: dict[int, Wait] = {}
        self._deadlines = Deadlines(self._waits, self._give_up)
        self._empty = asyncio.Event()
        self._empty.set()
        self.in_flight = 0  # sent, without a result yet

    def enter(self, operation: Operation, max_bytes: int) -> Wait:
        """Registers the operation, and only then queues it, so that its result always finds it.

        Raises UnavailableError when the queue is full, and other errors when it cannot be sent: then nothing was sent.
        """
        number = free_number(self._numbers, self._waits, self._tombstones, self._info.key)
        data = self._encoded(number, operation)
        if len(data) > max_bytes:
            raise InvalidArgumentError(f"this {operation.verb.value} has {len(data)} bytes: {max_bytes} are allowed")
        wait = Wait(number, operation, self._loop.create_future())
        self._waits[number] = wait
        self._empty.clear()
        if not self._outbox.put(number, data):
            self._drop(wait)
            raise UnavailableError(
                f"too many operations wait for the driver for {self._info.key}: nothing was sent; try again later"
            )
        # Not asyncio.timeout(): it would cancel the caller, and lose a reply that comes at the same moment.
        wait.due = self._deadlines.add(number, operation.timeout.total_seconds())
        return wait

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
            self._bury(wait)
            self._fail(wait, self._too_late(wait))

    def _too_late(self, wait: Wait) -> CloudgraftError:
        verb, seconds = wait.operation.verb.value, wait.operation.timeout.total_seconds()
        if not wait.sent:
            return UnavailableError(
                f"the driver for {self._info.key} took no new operation in {seconds:g} s: {verb} was not sent"
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
        self._bury(wait)
        if wait.sent:
            self._cancel(wait.number)

    def _bury(self, wait: Wait) -> None:
        if wait.sent:
            self._tombstones.add(self._info.key, wait.number)
        self._drop(wait)

    def mark_sent(self, number: int) -> None:
        """Marks the operation as handed to the connection."""
        self._waits[number].sent = True
        self.in_flight += 1
        self._regulate()

    def settle(self, reply: Reply) -> bool:
        """Delivers the reply to its caller; False when no caller waits."""
        wait = None if reply.foreign else self._waits.get(reply.number)
        if wait is None or not wait.sent:  # a reply to an operation that was not sent is invalid
            return False
        self._drop(wait)
        if not wait.future.done():
            wait.future.set_result(reply)
        return True

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
        for wait in list(self._waits.values()):
            self._bury(wait)
            verb = wait.operation.verb.value
            self._fail(
                wait,
                DeadlineError(f"{why} in the middle of {verb} ({self._info.key}): whether it was done is unknown"),
            )

    @staticmethod
    def _fail(wait: Wait, error: CloudgraftError) -> None:
        if not wait.future.done():
            wait.future.set_exception(error)

    async def empty(self) -> None:
        """Returns when no operation is pending."""
        await self._empty.wait()

    def _drop(self, wait: Wait) -> None:
        if self._waits.pop(wait.number, None) is None:
            return
        if wait.sent:
            self.in_flight -= 1
            self._regulate()
        else:
            self._outbox.remove(wait.number)
        if not self._waits:
            self._empty.set()

    def _regulate(self) -> None:
        if self._most:
            take = self.in_flight < self._most
            if take is not self._outbox.open:
                self._outbox.take_operations(take=take)


def answer_or_error(result: Result, operation: Operation) -> Answer:
    """Returns the result, or raises the error that the driver reported.

    A machine that comes with an error may or may not exist: the outcome is unknown, whatever the code.
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
    raise error
