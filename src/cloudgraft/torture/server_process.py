"""Runs `cloudgraft serve` as a child process that can be killed, and reads its log.

Each process runs under a guard (:mod:`cloudgraft.sdk.common.child_guard`), so that none is left when this one dies. The
next process is started before it is needed and waits with everything imported: a restart then takes a fraction of a
second, less than most clouds need for a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cloudgraft.sdk.common import child_guard
from cloudgraft.sdk.errors import UnavailableError

LogLine = Mapping[str, Any]

_LINE_LIMIT = 1 << 20  # bytes of one log line
_GRACE = 3.0  # seconds for what the server has started, when only the server itself is killed
_STOP = 30.0  # seconds for a server that is stopped in the usual way
_KILLED = -signal.SIGKILL


class ServerProcess(Protocol):
    """One life of the server."""

    serving: asyncio.Event  # set when it answers calls

    async def loaded(self) -> None:
        """Waits until it can serve at once when it is let."""

    async def begin(self, on_line: Callable[[LogLine], None]) -> None:
        """Lets it serve; every line of its log goes to ``on_line``."""

    def kill(self) -> None:
        """Sends SIGKILL."""

    async def ended(self) -> int:
        """Waits for its end; returns the exit code, negative for a signal."""

    async def stop(self) -> int:
        """Stops it in the usual way, and returns its exit code."""

    async def discard(self) -> None:
        """Ends it, whatever it does."""


class GuardedServer:
    """A server that is started by a command which waits for a line on its standard input."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, log: Path) -> None:
        self.serving = asyncio.Event()
        self.pid = 0
        self._is_loaded = asyncio.Event()
        self._process = process
        self._control = control
        self._log = log
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._on_line: Callable[[LogLine], None] = lambda _line: None
        self._tasks = [asyncio.create_task(self._read_log()), asyncio.create_task(self._read_control())]

    @classmethod
    async def start(cls, command: Sequence[str], log: Path, *, with_children: bool) -> GuardedServer:
        """Starts the command, which waits. ``with_children``: a kill ends what the server has started at once."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", child_guard.__file__),
                *(str(theirs.fileno()), str(0.0 if with_children else _GRACE), "", "", *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in a terminal is for this process, which then stops its servers
                limit=_LINE_LIMIT,
            )
        return cls(process, ours, log)

    async def loaded(self) -> None:
        """See :class:`ServerProcess`."""
        await self._is_loaded.wait()

    async def begin(self, on_line: Callable[[LogLine], None]) -> None:
        """See :class:`ServerProcess`."""
        self._on_line = on_line
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):  # it has ended: `ended` says how
            self._process.stdin.write(b"\n")
            await self._process.stdin.drain()

    def kill(self) -> None:
        """See :class:`ServerProcess`."""
        if self.pid and not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def ended(self) -> int:
        """See :class:`ServerProcess`."""
        return await asyncio.shield(self._code)

    async def stop(self) -> int:
        """See :class:`ServerProcess`."""
        if self.pid and not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP):
                return await self.ended()
        except TimeoutError:
            raise UnavailableError(f"the server did not stop within {_STOP:g} s") from None

    async def discard(self) -> None:
        """See :class:`ServerProcess`."""
        self.kill()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # the guard ends what is left, and closes the other direction
        await self._process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._control.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _read_control(self) -> None:
        """Reads the guard's lines: the pid, then how the server ended."""
        loop, data = asyncio.get_running_loop(), b""
        with contextlib.suppress(OSError):
            while chunk := await loop.sock_recv(self._control, 4096):
                data += chunk
                *lines, data = data.split(b"\n")
                for line in lines:
                    self._hear(line.decode(errors="replace"))
        if not self._code.done():
            self._code.set_result(_KILLED)

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "pid":
            self.pid = int(rest)
        elif not self._code.done():
            self._code.set_result(int(rest) if word == "ended" else child_guard.CANNOT_START)

    async def _read_log(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        with self._log.open("ab") as file:
            while True:
                try:
                    line = await self._process.stderr.readline()
                except ValueError:  # longer than the limit
                    continue
                self._is_loaded.set()  # the first line says so, or it has ended
                if not line:
                    return
                file.write(line)
                file.flush()
                self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        try:
            read = json.loads(line)
        except ValueError:
            return  # of a driver or a library
        if isinstance(read, dict):
            if read.get("event") == "serving":
                self.serving.set()
            self._on_line(read)
