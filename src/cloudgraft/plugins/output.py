"""What a plugin prints: one line is its handshake, all the rest goes into our log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from cloudgraft.plugins.handshake import Handshake, HandshakeError, is_plugin_line, parse_line
from cloudgraft.plugins.lines import lines_of

__all__ = ["Output", "log_output"]

log = logging.getLogger("cloudgraft.plugins")

_NOISE_LIMIT = 64 * 1024  # characters on stdout that are no handshake
_QUOTED_LINES = 5
_QUOTED_CHARACTERS = 200


def log_output(plugin: str, stream: str, line: str) -> None:
    """One line of a plugin's output, in our log."""
    if line:
        log.info("%s", line, extra={"plugin": plugin, "stream": stream})


class Output:
    """Reads stdout and stderr of one process to their end, so that it never blocks on a full pipe."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._handshake: asyncio.Future[Handshake] = asyncio.get_running_loop().create_future()
        self._first_stdout: list[str] = []
        self._noise = 0
        self._last_stderr: deque[str] = deque(maxlen=_QUOTED_LINES)
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

    def evidence(self) -> str:
        """What was on stdout and stderr, for an error message."""
        return self._quote("stdout", self._first_stdout) + self._quote("stderr", list(self._last_stderr))

    def last_words(self) -> str:
        """What was last on stderr, for an error message."""
        return self._quote("stderr", list(self._last_stderr))

    def _quote(self, stream: str, lines: list[str]) -> str:
        return f"; its {stream} said: " + " / ".join(line[:_QUOTED_CHARACTERS] for line in lines) if lines else ""

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for line in lines_of(stream):
            if self._handshake.done() or not is_plugin_line(line):
                log_output(self._plugin, "stdout", line)
            if not self._handshake.done():
                self._look_at(line)
        self.stdout_closed.set()

    def _look_at(self, line: str) -> None:
        if is_plugin_line(line):
            try:
                self._handshake.set_result(parse_line(line))
            except HandshakeError as error:
                self._refuse(f"{error.message} (it printed {line[:_QUOTED_CHARACTERS]!r})")
            return
        self._noise += len(line) + 1
        if line and len(self._first_stdout) < _QUOTED_LINES:
            self._first_stdout.append(line)
        if self._noise > _NOISE_LIMIT:
            self._refuse(f"it prints and prints, but no handshake{self.evidence()}")

    def _refuse(self, reason: str) -> None:
        self._handshake.set_exception(HandshakeError(reason))
        self._handshake.exception()  # looked at: no complaint when nobody waits any more

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for line in lines_of(stream):
            self._last_stderr.append(line)
            log_output(self._plugin, "stderr", line)
