"""Runs the commands of one cloud, each in its own process, with a timeout and limited concurrency.

It maps the end of a run to an error: by its exit code, and by the error that the script printed.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import enum
import errno
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.common.machine_json import error_from_json, parse_json
from cloudgraft.drivers.common.secrets import CUT, without
from cloudgraft.drivers.exec.options import CommandOptions
from cloudgraft.sdk.common import child_guard
from cloudgraft.sdk.common.files import is_directory, is_file
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.secrecy import hide, redacted

# -- one run -----------------------------------------------------------------------------------------------------------
# One run of a command: JSON in, bytes out, within a time limit, and with no process left behind.

_OUTPUT_LIMIT: Final = 16 * 1024 * 1024  # bytes of stdout, and as many of stderr
STDERR_KEPT: Final = 4 * 1024  # bytes, the last ones
_KEEPER_MARGIN: Final = 12.0  # seconds beyond the grace period: it kills for ten, then gives up
_MOMENT: Final = 1.0  # between the end of a process and the end of its pipes


class Stop(enum.Enum):
    """Why a run was stopped before it ended by itself."""

    TIMEOUT = "it did not end in time"
    TOO_MUCH = "it printed too much"
    CANCELLED = "the call was given up"
    CLOSED = "cloudgraft is stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command to run, and its input."""

    command: Sequence[str]
    timeout: timedelta
    changes: bool  # False: it only reads
    stdin: bytes = field(default=b"", repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # variable -> content of the file it names
    secret_files: Mapping[str, Path] = field(default_factory=dict)  # variable -> file with its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a run ended. Exactly one of ``code``, ``stop`` and ``cannot_start`` is set; none when it is unknown."""

    code: int | None = None  # it ended by itself; negative for a signal
    stop: Stop | None = None  # it was stopped
    cannot_start: str = ""  # nothing was run
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)  # the last few KiB

    @property
    def how(self) -> str:
        """Describes the end for a message: ``exited with 3``."""
        if self.stop is not None:
            return f"was stopped: {self.stop.value}"
        if self.code is None:
            return "vanished together with its keeper"
        return f"exited with {self.code}" if self.code >= 0 else f"was ended by {_signal_name(-self.code)}"


class Process:
    """One run. :meth:`run` once; :meth:`stop` at any time.

    ``env`` is the whole environment of the command, which may hold secrets. ``scratch`` is removed when it has ended.
    """

    def __init__(self, call: Call, options: CommandOptions, env: Mapping[str, str], scratch: Path | None) -> None:
        self._call = call
        self._directory = options.working_directory
        self._grace = options.grace.total_seconds()
        self._env = env
        self._scratch = scratch
        self._stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._output = _Output(lambda: self.stop(Stop.TOO_MUCH))

    def stop(self, why: Stop) -> None:
        """Stops it: SIGTERM to the command and all its descendants, and SIGKILL after the grace period."""
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def run(self) -> Finished:
        """Runs from start to end. Never cancel it: call :meth:`stop`, and it ends soon."""
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
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self._output,
            *(sys.executable, "-I", "-S", child_guard.__file__),
            *(str(control), str(self._grace), str(self._scratch or ""), str(self._directory or "")),
            *self._call.command,
            env=dict(self._env),
            pass_fds=(control,),
            start_new_session=True,  # Ctrl-C in a terminal is for cloudgraft, which then ends its calls itself
        )
        return transport

    async def _until_end(self, transport: asyncio.SubprocessTransport, control: socket.socket) -> None:
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 - stdin is a pipe
        stdin.write(self._call.stdin)
        stdin.close()  # once all of it is written; a script need not read it
        seconds = self._call.timeout.total_seconds()
        timer = asyncio.get_running_loop().call_later(seconds, self.stop, Stop.TIMEOUT)
        exited = self._output.exited
        first: set[asyncio.Future[Any]] = {exited, self._stopped}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)  # the timer is its limit
        timer.cancel()
        if not exited.done():
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_WR)  # the other direction stays open: the keeper will report the end
            await asyncio.wait({exited}, timeout=self._grace + _KEEPER_MARGIN)
        await asyncio.wait({self._output.closed}, timeout=_MOMENT)

    def _finished(self, said: str) -> Finished:
        word, _, rest = said.rpartition("\n")[2].partition(" ")  # the first line has the pid
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
        number, _, rest = reason.partition(" ")
        text = rest.partition(": ")[0]
        program = self._call.command[0]
        place = (self._directory or Path()) / program
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
    """Reads the output of a process to its end, so that it never blocks on a full pipe; keeps a bounded part."""

    def __init__(self, on_too_much: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()  # its pipes, too
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.is_too_much = False
        self._stderr_read = 0
        self._on_too_much = on_too_much

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-STDERR_KEPT]
            self._stderr_read += len(data)
            if self._stderr_read > _OUTPUT_LIMIT and not self.is_too_much:
                self.is_too_much = True
                self._on_too_much()
        elif not self.is_too_much:
            self.stdout += data
            if len(self.stdout) > _OUTPUT_LIMIT:
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


# -- all runs ----------------------------------------------------------------------------------------------------------
# Runs the commands of one cloud with limited concurrency and with their secrets, and none after close().

_LARGEST_SECRET: Final = 64 * 1024  # bytes; more than an environment variable holds anyway
_OURS: Final = "CLOUDGRAFT_"
_SCRATCH: Final = "cloudgraft-exec-"
_OLD: Final = 24 * 3600.0  # seconds: no command runs that long


class Runner:
    """Runs commands, and ends them when it closes."""

    def __init__(self, options: CommandOptions) -> None:
        self._options = options
        self._changing = asyncio.Semaphore(options.concurrency)
        self._looking = asyncio.Semaphore(options.concurrency)  # separate: a list never waits for slow creates
        self._running: dict[asyncio.Task[Finished], Process] = {}
        self._is_closed = False

    def open(self) -> None:
        """Accepts commands, also again after :meth:`close`."""
        self._is_closed = False
        _sweep()

    async def close(self) -> None:
        """Ends the running commands, and waits for them."""
        self._is_closed = True
        for process in self._running.values():
            process.stop(Stop.CLOSED)
        if self._running:
            await asyncio.wait(list(self._running), timeout=self._options.grace.total_seconds() + 15)

    def check(self, key: str, command: Sequence[str]) -> None:
        """Raises PreconditionError when the program does not exist; runs nothing."""
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

    def missing(self) -> dict[str, str]:
        """Returns the programs that do not exist, by the key of their command, each with what is wrong."""
        found = {}
        for key, command in self._options.commands().items():
            try:
                self.check(key, command)
            except PreconditionError as error:
                place, _, message = error.message.partition(": ")
                found[place if place == "workingDirectory" else key] = message or error.message
        return found

    async def run(self, call: Call) -> Finished:
        """Runs the command and returns how it ended. Cancelling ends it with all its descendants, and then raises."""
        async with self._changing if call.changes else self._looking:
            if self._is_closed:
                raise UnavailableError("the driver is closed; nothing was done")
            env = self._environment(call)  # may raise: do it before there is anything to clean up
            files = {name: content for name, content in call.files.items() if content}
            scratch = _write(files) if files else None
            try:
                env |= {name: str(scratch / name) if scratch else os.devnull for name in call.files}
                return await self._finished(Process(call, self._options, env, scratch))
            finally:
                if scratch is not None:
                    shutil.rmtree(scratch, ignore_errors=True)  # the keeper has removed it, unless it was killed

    async def _finished(self, process: Process) -> Finished:
        task = asyncio.create_task(process.run())
        self._running[task] = process
        task.add_done_callback(self._running.pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            process.stop(Stop.CANCELLED)
            await asyncio.wait({task})  # ends within the grace period and a margin; a second cancellation need not wait
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
    """Returns the content of a file without the last newline; hidden from now on (law 9)."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a named pipe must not block us
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
    """Removes old user data of commands that were killed together with their keepers and with cloudgraft."""
    with contextlib.suppress(OSError):
        for place in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
            found = place.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and time.time() - found.st_mtime > _OLD:
                shutil.rmtree(place, ignore_errors=True)


def _write(files: Mapping[str, str]) -> Path:
    """Creates a directory that only we can enter, with these files."""
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


# -- exit codes --------------------------------------------------------------------------------------------------------
# The meaning of exit codes, in one table; docs/reference/exec-driver.md shows it, and a test compares. The numbers are
# large on purpose: a script that ends because a program in it failed (``set -e``) exits with that program's code, and
# the codes of curl, ssh, apt, Perl and all the others are below 128 or above 250. If 6 meant "the quota is reached, and
# nothing was done", a curl that does not find its host would report that.

EXIT_CODES: Final[dict[int, type[CloudgraftError]]] = {
    200: InvalidArgumentError,
    201: NotFoundError,
    202: AlreadyExistsError,
    203: PreconditionError,
    204: ConflictError,
    205: QuotaExceededError,
    206: OutOfStockError,
    207: RateLimitedError,
    208: AuthenticationError,
    209: PermissionDeniedError,
    210: UnavailableError,
    211: UnsupportedError,
}


def error_of(code: int | None, *, changes: bool) -> type[CloudgraftError]:
    """Returns the error class of an exit code; None means any other end.

    When the script ``changes`` something, a code that is not in the table leaves the outcome open, and a list settles
    it (law 3). A script that only reads has done nothing, however it ended.
    """
    unknown = DeadlineError if changes else UnavailableError
    return unknown if code is None else EXIT_CODES.get(code, unknown)


# -- ended runs --------------------------------------------------------------------------------------------------------
# An ended run is a response, or an error with the class and the text that the script chose.

_QUOTED: Final = 1000  # characters of stderr in a message: it becomes part of an event


def failure_of(finished: Finished, what: str, *, changes: bool, secret: str = "") -> CloudgraftError | None:
    """Returns the error of a run; None when it succeeded. No line of ``secret`` may be shown."""
    if finished.cannot_start:
        return UnavailableError(f"{what} cannot be run: {finished.cannot_start}. Nothing was done")
    if finished.code == 0:
        return None
    words = without(printable(finished.stderr), secret)
    said = f"; its last words: {words}" if words else "; it wrote nothing to stderr"
    own = _stated(finished)
    if own is not None:
        return type(own)(f"{what}: {without(own.message, secret)}", retry_after=own.retry_after)
    kind = error_of(finished.code, changes=changes)
    if finished.code in EXIT_CODES:
        return kind(f"{what} {finished.how} ({kind.slug}){said}")
    unknown = ". What it did is not known" if changes else ""
    return kind(f"{what} {finished.how}{unknown}{said}{_advice(finished)}")


def check_success(finished: Finished, what: str, secret: str = "") -> None:
    """Refuses exit code 0 with an error on stdout: one of them is wrong, and it is unclear which."""
    error = _stated(finished)
    if error is not None:
        raise InternalError(
            f"{what} exited with 0, which says that it went well, and printed an error: "
            f"{without(error.message, secret)}. Exit with another code when it did not go well"
        )


def _stated(finished: Finished) -> CloudgraftError | None:
    """Returns the error object on stdout, if there is one: it says more than a number."""
    if not finished.stdout.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return None
    try:
        return error_from_json(parse_json(finished.stdout, "it"), "its error object")
    except CloudgraftError:
        return None


def _advice(finished: Finished) -> str:
    if finished.stop is Stop.TOO_MUCH:
        return ". Print one JSON object to stdout, and everything else to stderr"
    if finished.stop is Stop.TIMEOUT:
        return ". If it needs more time, raise its timeout under `timeouts`, and that of the engine"
    return ""


def printable(raw: bytes) -> str:
    """Returns the end of the output on one line. Redacts before it cuts: half a secret would not be recognized."""
    text = redacted(raw.decode("utf-8", "replace"))
    lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
    joined = " / ".join(line for line in lines if line)
    is_cut = len(joined) > _QUOTED or len(raw) >= STDERR_KEPT
    return f"{CUT}{joined[-_QUOTED:]}" if is_cut else joined
