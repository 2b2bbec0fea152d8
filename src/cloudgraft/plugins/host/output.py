"""Reads what a plugin prints: one line is its handshake, all the rest goes into our log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from cloudgraft.plugins.handshake import Handshake, HandshakeError, is_plugin_line, parse_line
from cloudgraft.plugins.host.lines import batches_of, printable
from cloudgraft.plugins.host.output_log import OutputLog

__all__ = ["Output"]

_NOISE_LIMIT = 64 * 1024  # characters on stdout that are no handshake
_QUOTED_LINES = 5
_QUOTED_CHARACTERS = 200


class Output:
    """Reads stdout and stderr of one process to their end, so that it never blocks on a full pipe."""

    def __init__(self, log: OutputLog) -> None:
        self._log = log
        self._handshake: asyncio.Future[Handshake] = asyncio.get_running_loop().create_future()
        self._first_stdout: list[bytes] = []
        self._noise = 0
        self._last_stderr: deque[bytes] = deque(maxlen=_QUOTED_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self.stdout_closed = asyncio.Event()

    def follow(self, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        """Begins to read."""
        self._tasks = [asyncio.create_task(self._read_stdout(stdout)), asyncio.create_task(self._read_stderr(stderr))]

    async def handshake(self) -> Handshake:
        """The plugin's line, once it is there; raises :class:`HandshakeError` for a line that is wrong."""
        return await asyncio.shield(self._handshake)

    @property
    def has_handshake(self) -> bool:
        """True once a line was found, right or wrong."""
        return self._handshake.done()

    async def read_rest(self, seconds: float) -> None:
        """Reads what is left of a process that has ended, at most this long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def end(self, seconds: float) -> None:
        """Reads what is left, and no more."""
        await self.read_rest(seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._handshake.cancel()
        self._log.report()

    def evidence(self) -> str:
        """What was on stdout and stderr, for an error message."""
        return self._quote("stdout", self._first_stdout) + self._quote("stderr", self._last_stderr)

    def last_words(self) -> str:
        """What was last on stderr, for an error message."""
        return self._quote("stderr", self._last_stderr)

    def _quote(self, stream: str, lines: Iterable[bytes]) -> str:
        quoted = " / ".join(printable(line)[:_QUOTED_CHARACTERS] for line in lines)
        return f"; its {stream} said: {quoted}" if quoted else ""

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for lines in batches_of(stream):
            seen = 0
            while seen < len(lines) and not self._handshake.done():
                self._look_at(lines[seen])
                seen += 1
            await self._log.write("stdout", [*self._not_handshake(lines[:seen]), *lines[seen:]])
        self.stdout_closed.set()

    def _not_handshake(self, lines: list[bytes]) -> list[bytes]:
        """The lines without the handshake, which is no news to a reader of the log."""
        return [line for line in lines if not is_plugin_line(printable(line))]

    def _look_at(self, raw: bytes) -> None:
        line = printable(raw)
        if is_plugin_line(line):
            try:
                self._handshake.set_result(parse_line(line))
            except HandshakeError as error:
                self._refuse(f"{error.message} (it printed {line[:_QUOTED_CHARACTERS]!r})")
            return
        self._noise += len(line) + 1
        if line and len(self._first_stdout) < _QUOTED_LINES:
            self._first_stdout.append(raw)
        if self._noise > _NOISE_LIMIT:
            self._refuse(f"it prints and prints, but no handshake{self.evidence()}")

    def _refuse(self, reason: str) -> None:
        self._handshake.set_exception(HandshakeError(reason))
        self._handshake.exception()  # looked at: no complaint when nobody waits any more

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for lines in batches_of(stream):
            self._last_stderr.extend(lines[-_QUOTED_LINES:])
            await self._log.write("stderr", lines)
