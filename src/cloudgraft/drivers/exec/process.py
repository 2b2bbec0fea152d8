"""One run of a command: JSON in, bytes out, an end in time, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.exec import keeper

__all__ = ["STDERR_KEPT", "Finished", "Job", "Process", "Stop"]

_OUTPUT_LIMIT: Final = 16 * 1024 * 1024  # bytes of stdout, and as many of stderr
STDERR_KEPT: Final = 4 * 1024  # bytes, the last ones
_KEEPER_MARGIN: Final = 12.0  # seconds beyond the grace: it kills for ten, then gives up
_MOMENT: Final = 1.0  # between the end of a process and the end of its pipes


class Stop(enum.Enum):
    """Why a run was made to end before it did so by itself."""

    TIMEOUT = "it did not end in time"
    TOO_MUCH = "it printed too much"
    CANCELLED = "the call was given up"
    CLOSED = "cloudgraft is stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command to run once."""

    command: Sequence[str]
    directory: Path | None
    env: Mapping[str, str] = field(repr=False)  # all of it; may hold secrets
    stdin: bytes = field(default=b"", repr=False)  # likewise
    scratch: Path | None = None  # removed when the run has ended
    seconds: float
    grace: float = 2.0  # from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a run ended. Exactly one of ``code``, ``stop`` and ``cannot_start`` is told; none when nobody knows."""

    code: int | None = None  # it ended by itself; negative for a signal
    stop: Stop | None = None  # it was made to end
    cannot_start: str = ""  # nothing was run
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)  # the last few KiB

    @property
    def how(self) -> str:
        """For a message: ``exited with 3``."""
        if self.stop is not None:
            return f"was stopped: {self.stop.value}"
        if self.code is None:
            return "vanished together with its keeper"
        return f"exited with {self.code}" if self.code >= 0 else f"was ended by {_signal_name(-self.code)}"


class Process:
    """One run. :meth:`run` once; :meth:`stop` at any time."""

    def __init__(self, job: Job, *, limit: int = _OUTPUT_LIMIT) -> None:
        self._job = job
        self._stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._output = _Output(limit, lambda: self.stop(Stop.TOO_MUCH))

    def stop(self, why: Stop) -> None:
        """Makes it end: SIGTERM to everything that came from it, and SIGKILL after the grace."""
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def run(self) -> Finished:
        """From the start to the end. Never cancel it: call :meth:`stop`, and it ends soon."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # too many open files
            return Finished(cannot_start=error.strerror or str(error))
        with ours:
            ours.setblocking(False)
            try:
                with theirs:
                    transport = await self._start(theirs.fileno())
            except OSError as error:
                return Finished(cannot_start=error.strerror or str(error))
            try:
                await self._until_end(transport, ours)
            finally:
                transport.close()
            return self._finished(_read(ours))

    async def _start(self, control: int) -> asyncio.SubprocessTransport:
        job = self._job
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self._output,
            *(sys.executable, "-I", "-S", keeper.__file__),
            *(str(control), str(job.grace), str(job.scratch or ""), str(job.directory or ""), *job.command),
            env=dict(job.env),
            pass_fds=(control,),
            start_new_session=True,  # Ctrl-C in a terminal is for cloudgraft, which then ends its calls in order
        )
        return transport

    async def _until_end(self, transport: asyncio.SubprocessTransport, control: socket.socket) -> None:
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 - it was asked for
        stdin.write(self._job.stdin)
        stdin.close()  # once all of it is written; a script that does not read it does no harm
        timer = asyncio.get_running_loop().call_later(self._job.seconds, self.stop, Stop.TIMEOUT)
        exited = self._output.exited
        first: set[asyncio.Future[Any]] = {exited, self._stopped}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)  # the timer is its limit
        timer.cancel()
        if not exited.done():
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_WR)  # the other direction stays open: the keeper has something to tell
            await asyncio.wait({exited}, timeout=self._job.grace + _KEEPER_MARGIN)
        await asyncio.wait({self._output.closed}, timeout=_MOMENT)

    def _finished(self, said: str) -> Finished:
        word, _, rest = said.partition(" ")
        if word == "failed":
            return Finished(cannot_start=self._why_not(rest))
        stdout, stderr = bytes(self._output.stdout), bytes(self._output.stderr)
        if self._output.is_too_much:
            return Finished(stop=Stop.TOO_MUCH, stderr=stderr)
        if word == "ended":
            return Finished(code=int(rest), stdout=stdout, stderr=stderr)
        why = self._stopped.result() if self._stopped.done() else None
        return Finished(stop=why, stderr=stderr)

    def _why_not(self, reason: str) -> str:
        number, _, text = reason.partition(" ")
        program = self._job.command[0]
        place = (self._job.directory or Path()) / program
        if "/" not in program or not place.is_file():
            return f"{program}: {text}"
        match int(number):
            case errno.ENOENT:
                return f"{program} is there, but the program in its first line (#!...) is not"
            case errno.ENOEXEC:
                return f"{program} is no program: a script needs a first line such as #!/bin/bash"
            case errno.EACCES if os.access(place, os.X_OK):
                return f"{program}: {text}; is its file system mounted noexec, or its first line (#!...) wrong?"
            case errno.EACCES:
                return f"{program}: {text}; make it executable: chmod +x {program}"
        return f"{program}: {text}"


class _Output(asyncio.SubprocessProtocol):
    """Takes in what a process prints, to its end, so that it never blocks on a full pipe; keeps a bounded part."""

    def __init__(self, limit: int, on_too_much: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()  # its pipes, too
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.is_too_much = False
        self._limit = limit
        self._stderr_read = 0
        self._on_too_much = on_too_much

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-STDERR_KEPT]
            self._stderr_read += len(data)
            if self._stderr_read > self._limit and not self.is_too_much:
                self.is_too_much = True
                self._on_too_much()
        elif not self.is_too_much:
            self.stdout += data
            if len(self.stdout) > self._limit:
                self.is_too_much = True
                self.stdout.clear()
                self._on_too_much()

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def _read(control: socket.socket) -> str:
    try:
        return control.recv(4096).decode(errors="replace").strip()
    except OSError:
        return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
