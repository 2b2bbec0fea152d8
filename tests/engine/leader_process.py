"""The program of :mod:`tests.engine.stopped_leader`, seen from outside."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class Line(NamedTuple):
    """What it did, and when."""

    at: float
    word: str
    about: str  # of a call and an election the epoch, of fencing the reason


class LeaderProcess:
    """A leader that can be stopped, woken and killed, and that says what it does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def word(self) -> str:
        """The next thing it says: call, refrain, elected or fenced."""
        return (await self._line()).word

    async def says(self, word: str, *, after: float = 0.0) -> list[Line]:
        """All that it says up to the first such word of after that time."""
        said: list[Line] = []
        while not said or said[-1].word != word or said[-1].at <= after:
            said.append(await self._line())
        return said

    async def _line(self) -> Line:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            line = await self._process.stdout.readline()
        at, word, *about = line.decode().split()
        return Line(float(at), word, " ".join(about))


@asynccontextmanager
async def leader_process(*arguments: object) -> AsyncIterator[LeaderProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.engine.stopped_leader",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield LeaderProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
