"""What waits to be written: one writer for each stream, and a reader that waits when nobody reads our answers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NoReturn

from google.protobuf.message import Message

from cloudgraft.dock.runner.dial import End, Stream

__all__ = ["Outbox"]

_ROOM: Final = 1000  # messages


class Outbox:
    """Messages on their way to the hub."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: deque[Message | None] = deque()
        self._changed = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self._since: float | None = None  # when the message was begun that is being written

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Never waits: what has happened has happened, and must be told."""
        self._waiting.append(message)
        self._changed.set()
        if len(self._waiting) >= _ROOM:
            self._space.clear()

    def end(self) -> None:
        """Half-closes the stream, after all that waits."""
        self._waiting.append(None)
        self._changed.set()

    async def room(self) -> None:
        """For the reader: more work is taken in only when there is room for its result."""
        await self._space.wait()

    async def watch(self, patience: float) -> End:
        """Ends when the hub has left us unread for so many seconds. A timer for each message would cost too much."""
        now = asyncio.get_running_loop().time
        while self._since is None or now() - self._since < patience:  # noqa: ASYNC110 - nothing happens: that is looked for
            await asyncio.sleep(patience / 4)
        return End(reason="the hub does not read what it is sent")

    async def write(self) -> NoReturn:
        """Writes what there is, one after the other; raises what the stream raises when it is over."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            message = self._waiting.popleft()
            if len(self._waiting) < _ROOM:
                self._space.set()
            self._since = loop.time()
            if message is None:
                await self._stream.done_writing()
            else:
                await self._stream.write(message.SerializeToString())
            self._since = None
