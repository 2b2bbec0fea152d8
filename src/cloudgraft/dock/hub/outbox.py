"""Queues messages to one driver, bounded, and coalesces repeated notifications for slow readers."""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from cloudgraft.dock.protocol.dialect import Dialect
from cloudgraft.dock.protocol.v1 import duration_to_pb
from cloudgraft.wire.pb import dock_pb2 as pb

# -- Bounded queue -----------------------------------------------------------------------------------------------------
# A driver that never reads must not fill the memory.


Notification = Callable[[], bytes | None]  # built when it is sent; None: no longer needed


class Lane(enum.IntEnum):
    """The queue of an operation. Lanes take turns, so a list waits for one create at most, however many are queued."""

    READ = 0
    DELETE = 1
    CREATE = 2


class Outbox:
    """Queues operations in order of arrival within their lane, with notifications ahead of them."""

    def __init__(self, *, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._notifications: deque[Notification] = deque(maxlen=limit)  # drops the oldest: none is essential
        self._lanes: tuple[dict[int, bytes], ...] = tuple({} for _ in Lane)
        self._turn = 0  # the lane to look into first
        self._count = self._bytes = 0
        self._loop = asyncio.get_running_loop()  # cached: each lookup is a system call
        self._writer: asyncio.Future[None] | None = None  # set while the writer waits for something to send
        self.open = True  # whether the driver accepts another operation now

    def __len__(self) -> int:
        return self._count

    def put(self, number: int, data: bytes, lane: Lane = Lane.READ) -> bool:
        """Queues an operation; False when the queue is full."""
        if self._count >= self._limit or (self._bytes and self._bytes + len(data) > self._limit_bytes):
            return False
        self._lanes[lane][number] = data
        self._count += 1
        self._bytes += len(data)
        if self._writer is not None:
            self._wake()
        return True

    def remove(self, number: int) -> None:
        """Removes an operation that was given up."""
        for lane in self._lanes:
            data = lane.pop(number, None)
            if data is not None:
                self._count -= 1
                self._bytes -= len(data)

    def notify(self, notification: Notification) -> None:
        """Queues a notification ahead of all operations."""
        self._notifications.append(notification)
        self._wake()

    def take_operations(self, *, take: bool) -> None:
        """Starts or stops handing out operations; notifications are always handed out."""
        self.open = take
        self._wake()

    async def next(self) -> tuple[int | None, bytes]:
        """Removes and returns the next message, with its number if it is an operation.

        Only the writing task calls this.
        """
        while True:
            while self._notifications:
                data = self._notifications.popleft()()
                if data is not None:
                    return None, data
            if self._count and self.open:
                return self._take()
            self._writer = self._loop.create_future()
            await self._writer

    def _take(self) -> tuple[int, bytes]:
        turns = (*range(self._turn, len(self._lanes)), *range(self._turn))
        lane = next(turn for turn in turns if self._lanes[turn])
        self._turn = (lane + 1) % len(self._lanes)
        number = next(iter(self._lanes[lane]))
        data = self._lanes[lane].pop(number)
        self._count -= 1
        self._bytes -= len(data)
        return number, data

    def _wake(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)


# -- Notifications -----------------------------------------------------------------------------------------------------


_MOST_ACKNOWLEDGED: Final = 100_000  # numbers that wait for a driver that does not read
_ACKNOWLEDGE_AFTER: Final = 1.0  # seconds: acknowledge many at once, because no driver waits for it
_ACKNOWLEDGE_AT: Final = 100  # or this many numbers


class Notifications:
    """The notifications that wait in one driver's outbox."""

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
        """Admits the driver."""
        welcome = pb.Welcome(
            session_id=session_id,
            heartbeat=duration_to_pb(timedelta(seconds=heartbeat)),
            max_message_bytes=max_message_bytes,
        )
        self._send(pb.HubMessage(welcome=welcome))

    def drain(self, grace: float) -> None:
        """Announces that the hub is going to close."""
        self._send(pb.HubMessage(drain=pb.Drain(grace=duration_to_pb(timedelta(seconds=grace)))))

    def cancel(self, number: int) -> None:
        """Cancels an operation whose caller has left."""
        self._send(pb.HubMessage(cancel=pb.Cancel(id=number)))

    def _send(self, message: pb.HubMessage) -> None:
        self._outbox.notify(lambda: self._dialect.notification(message))

    def beat(self) -> None:
        """Sends a heartbeat."""
        if not self._beat_queued:
            self._beat_queued = True
            self._outbox.notify(self._heartbeat)

    def acknowledge(self, number: int) -> None:
        """Acknowledges the result of this operation. Cheap, because almost every operation needs it."""
        numbers = self._acknowledged
        if not self._dialect.acknowledges or len(numbers) >= _MOST_ACKNOWLEDGED:
            return
        numbers.append(number)
        if not self._will_acknowledge:
            self._will_acknowledge = True
            self._loop.call_later(_ACKNOWLEDGE_AFTER, self._time_to_acknowledge)
        if len(numbers) == _ACKNOWLEDGE_AT:
            self._outbox.notify(self._acknowledgement)

    def changed(self, classes: Iterable[str], secrets: Iterable[str]) -> None:
        """Announces that these classes and secrets have changed."""
        queued = any(self._changed)
        self._changed[0].update(dict.fromkeys(classes))
        self._changed[1].update(dict.fromkeys(secrets))
        if not queued:
            self._outbox.notify(self._changes)

    def _heartbeat(self) -> bytes | None:
        self._beat_queued = False
        self._beats += 1
        return self._dialect.notification(pb.HubMessage(heartbeat=pb.Heartbeat(number=self._beats)))

    def _time_to_acknowledge(self) -> None:
        self._will_acknowledge = False
        if self._acknowledged:
            self._outbox.notify(self._acknowledgement)

    def _acknowledgement(self) -> bytes | None:
        numbers, self._acknowledged = self._acknowledged, []
        if not numbers:
            return None
        return self._dialect.notification(pb.HubMessage(acknowledge=pb.Acknowledge(ids=numbers)))

    def _changes(self) -> bytes | None:
        (classes, secrets), self._changed = self._changed, ({}, {})
        return self._dialect.notification(
            pb.HubMessage(changed=pb.Changed(machine_classes=list(classes), secrets=list(secrets)))
        )
