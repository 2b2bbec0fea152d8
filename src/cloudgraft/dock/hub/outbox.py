"""What waits to be sent to one driver: bounded, for a driver that never reads must not fill the memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Outbox", "Words"]

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
