"""Runs the commands of one cloud: so many at a time, with their secrets, and none after the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.drivers.exec.options import CommandOptions
from cloudgraft.drivers.exec.process import Finished, Job, Process, Stop
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError, UnavailableError
from cloudgraft.sdk.files import is_directory, is_file
from cloudgraft.sdk.secrecy import hide

__all__ = ["Call", "Runner", "read_secret"]

_LARGEST_SECRET: Final = 64 * 1024  # bytes; more than an environment variable holds anyway
_OURS: Final = "CLOUDGRAFT_"
_SCRATCH: Final = "cloudgraft-exec-"
_OLD: Final = 24 * 3600.0  # seconds: no command runs that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command to run, and what it is told."""

    command: Sequence[str]
    timeout: timedelta
    changes: bool  # whether it does something, or only looks
    stdin: bytes = field(default=b"", repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # variable -> content of the file that it names
    secret_files: Mapping[str, Path] = field(default_factory=dict)  # variable -> file with its value


class Runner:
    """Runs commands. What it runs ends with it."""

    def __init__(self, options: CommandOptions) -> None:
        self._options = options
        self._changing = asyncio.Semaphore(options.concurrency)
        self._looking = asyncio.Semaphore(options.concurrency)  # apart: a list never waits for slow creates
        self._running: dict[asyncio.Task[Finished], Process] = {}
        self._is_closed = False

    def open(self) -> None:
        """Makes it run commands, also again after :meth:`close`."""
        self._is_closed = False
        _sweep()

    async def close(self) -> None:
        """Ends what runs, and waits for it."""
        self._is_closed = True
        for process in self._running.values():
            process.stop(Stop.CLOSED)
        if self._running:
            await asyncio.wait(list(self._running), timeout=self._options.grace.total_seconds() + 15)

    def check(self, key: str, command: Sequence[str]) -> None:
        """Raises PreconditionError when there is no such program; a look only, nothing is run."""
        program = command[0]
        place = (self._options.working_directory or Path()).absolute()
        if not is_directory(place):
            raise PreconditionError(f"workingDirectory: there is no directory {place}")
        if "/" not in program:
            path = self._options.env.get("PATH", os.environ.get("PATH", os.defpath))
            if shutil.which(program, path=path) is None:
                raise PreconditionError(
                    f"{key}: there is no program {program!r} in PATH; for a file, write ./{program}"
                )
            return
        file = place / program
        if not is_file(file):
            raise PreconditionError(f"{key}: there is no file {file}")
        if not os.access(file, os.X_OK):
            raise PreconditionError(f"{key}: {file} cannot be executed; make it executable: chmod +x {file}")

    async def run(self, call: Call) -> Finished:
        """How the command ended. Cancelling ends it and everything that came from it, and then raises."""
        async with self._changing if call.changes else self._looking:
            if self._is_closed:
                raise UnavailableError("the driver is closed; nothing was done")
            env = self._environment(call)  # may refuse: before there is anything to clean up
            files = {name: content for name, content in call.files.items() if content}
            scratch = _write(files) if files else None
            try:
                job = Job(
                    command=call.command,
                    directory=self._options.working_directory,
                    env=env | {name: str(scratch / name) if scratch else os.devnull for name in call.files},
                    stdin=call.stdin,
                    scratch=scratch,
                    seconds=call.timeout.total_seconds(),
                    grace=self._options.grace.total_seconds(),
                )
                return await self._finished(Process(job))
            finally:
                if scratch is not None:
                    shutil.rmtree(scratch, ignore_errors=True)  # the keeper did it already, unless it was killed

    async def _finished(self, process: Process) -> Finished:
        task = asyncio.create_task(process.run())
        self._running[task] = process
        task.add_done_callback(self._running.pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            process.stop(Stop.CANCELLED)
            await asyncio.wait({task})  # it ends within the grace and a margin; a second cancellation need not wait
            raise

    def _environment(self, call: Call) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        files = {**self._options.env_files, **call.secret_files}
        secrets = {name: read_secret(file, name) for name, file in files.items()}
        for name, value in call.variables.items():
            if "\0" in value:
                raise InvalidArgumentError(f"{name} has a NUL character, which no program can be given")
        return {**own, **self._options.env, **secrets, **call.variables}


def read_secret(file: Path, name: str) -> str:
    """The first lines of a file without the last line's end; hidden from now on (law 9)."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a named pipe must not hold us up
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            raw = os.read(descriptor, _LARGEST_SECRET + 1) if is_file else b"\0"
        finally:
            os.close(descriptor)
    except OSError as error:
        why = error.strerror or str(error)
        raise UnavailableError(f"the file for {name} cannot be read: {why}: {file}; nothing was done") from None
    try:
        value = raw.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        value = "\0"
    if len(raw) > _LARGEST_SECRET or "\0" in value:
        raise UnavailableError(f"the file for {name} is too large, or no file with text: {file}; nothing was done")
    hide(value, *(line for line in value.splitlines() if len(line) >= 16))
    return value


def _sweep() -> None:
    """Removes the user data of commands that were killed together with their keepers and with us, long ago."""
    with contextlib.suppress(OSError):
        for place in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
            found = place.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and time.time() - found.st_mtime > _OLD:
                shutil.rmtree(place, ignore_errors=True)


def _write(files: Mapping[str, str]) -> Path:
    """A directory that only we can enter, with these files in it."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    except OSError as error:
        raise UnavailableError(f"no temporary directory can be made: {error}. Nothing was done") from None
    try:
        for name, content in files.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(content)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise UnavailableError(f"no temporary file can be written: {error}. Nothing was done") from None
    return directory
