"""Queues messages to one driver, bounded, and coalesces repeated notifications for slow readers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from cloudgraft.dock.protocol.dialect import Dialect

__all__ = ["Notifications", "Outbox", "Words"]


# -- Messages to one driver: bounded, because a driver that never reads must not fill the memory -----------------------


Words = Callable[[], bytes | None]  # made when they are sent; None: there is nothing to say any more


class Outbox:
    """Operations in the order in which they came, and before them what hub and driver tell each other."""

    def __init__(self, *, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._words: deque[Words] = deque(maxlen=limit)  # of too many the oldest is lost: all can be done without
        self._operations: dict[int, bytes] = {}
        self._bytes = 0
        self._loop = asyncio.get_running_loop()  # asked for once: each time is a call of the system
        self._writer: asyncio.Future[None] | None = None  # it waits for something to send
        self.open = True  # whether the driver takes another operation now

    def __len__(self) -> int:
        return len(self._operations)

    def put(self, number: int, data: bytes) -> bool:
        """Whether there was room for this operation."""
        if len(self._operations) >= self._limit or (self._bytes and self._bytes + len(data) > self._limit_bytes):
            return False
        self._operations[number] = data
        self._bytes += len(data)
        if self._writer is not None:
            self._wake()
        return True

    def remove(self, number: int) -> None:
        """An operation that nobody wants sent any more."""
        self._bytes -= len(self._operations.pop(number, b""))

    def say(self, words: Words) -> None:
        """Words that go before all operations."""
        self._words.append(words)
        self._wake()

    def take_operations(self, *, take: bool) -> None:
        """Whether operations are handed out; words always are."""
        self.open = take
        self._wake()

    async def next(self) -> tuple[int | None, bytes]:
        """What is to be sent now, and the number of the operation that it is, if it is one. It is taken out.

        One task calls this, the one that writes.
        """
        while True:
            while self._words:
                data = self._words.popleft()()
                if data is not None:
                    return None, data
            if self._operations and self.open:
                number = next(iter(self._operations))
                data = self._operations.pop(number)
                self._bytes -= len(data)
                return number, data
            self._writer = self._loop.create_future()
            await self._writer

    def _wake(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)


# -- Notifications beside operations: repeated ones are coalesced ------------------------------------------------------


_MOST_ACKNOWLEDGED: Final = 100_000  # numbers that wait for a driver that does not read
_ACKNOWLEDGE_AFTER: Final = 1.0  # seconds: many at once, for nobody waits for it
_ACKNOWLEDGE_AT: Final = 100  # or so many


class Notifications:
    """The words that wait in one driver's outbox."""

    def __init__(self, dialect: Dialect, outbox: Outbox) -> None:
        self._dialect = dialect
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._acknowledged: list[int] = []
        self._will_acknowledge = False  # a timer runs
        self._changed: tuple[dict[str, None], dict[str, None]] = ({}, {})
        self._beats = 0
        self._beat_queued = False

    def welcome(self, session_id: str, heartbeat: float, max_message_bytes: int) -> None:
        """The driver is taken."""
        words = self._dialect.welcome(session_id, heartbeat, max_message_bytes)
        self._outbox.say(lambda: words)

    def drain(self, grace: float) -> None:
        """The hub goes away."""
        words = self._dialect.drain(timedelta(seconds=grace))
        self._outbox.say(lambda: words)

    def beat(self) -> None:
        """A sign of life."""
        if not self._beat_queued:
            self._beat_queued = True
            self._outbox.say(self._heartbeat)

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The results of these operations have arrived."""
        for number in numbers:
            self.acknowledge_one(number)

    def acknowledge_one(self, number: int) -> None:
        """The result of this operation has arrived. Most have: this is cheap."""
        numbers = self._acknowledged
        if not self._dialect.acknowledges or len(numbers) >= _MOST_ACKNOWLEDGED:
            return
        numbers.append(number)
        if not self._will_acknowledge:
            self._will_acknowledge = True
            self._loop.call_later(_ACKNOWLEDGE_AFTER, self._time_to_acknowledge)
        if len(numbers) == _ACKNOWLEDGE_AT:
            self._outbox.say(self._acknowledgement)

    def changed(self, classes: Iterable[str], secrets: Iterable[str]) -> None:
        """These classes and secrets are other ones now."""
        queued = any(self._changed)
        self._changed[0].update(dict.fromkeys(classes))
        self._changed[1].update(dict.fromkeys(secrets))
        if not queued:
            self._outbox.say(self._changes)

    def _heartbeat(self) -> bytes | None:
        self._beat_queued = False
        self._beats += 1
        return self._dialect.heartbeat(self._beats)

    def _time_to_acknowledge(self) -> None:
        self._will_acknowledge = False
        if self._acknowledged:
            self._outbox.say(self._acknowledgement)

    def _acknowledgement(self) -> bytes | None:
        numbers, self._acknowledged = self._acknowledged, []
        return self._dialect.acknowledge(numbers) if numbers else None

    def _changes(self) -> bytes | None:
        (classes, secrets), self._changed = self._changed, ({}, {})
        return self._dialect.changed(list(classes), list(secrets))
