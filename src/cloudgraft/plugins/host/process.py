"""Runs a plugin once: from its specification and command to its handshake, and to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudgraft.plugins.handshake import Handshake, HandshakeError, PluginError, environment, tls_directory
from cloudgraft.plugins.host.output import Output, OutputLog
from cloudgraft.plugins.throwaway_tls import HostTls
from cloudgraft.sdk.common import child_guard
from cloudgraft.sdk.errors import InvalidArgumentError

# -- Specification and timing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A program to run as a plugin."""

    name: str  # for people, in logs and messages
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to our environment; may hold secrets
    cwd: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)  # handed over as JSON, likewise

    def __post_init__(self) -> None:
        """Refuses an invalid command."""
        if isinstance(self.command, str) or not self.command or not self.command[0]:
            raise InvalidArgumentError(
                f"the plugin {self.name!r} needs a command as a list, program first: [python3, my_plugin.py]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timeouts and intervals, in seconds."""

    first_run: float = 5.0  # that the start waits for the first run; after that it continues in the background
    handshake: float = 15.0  # from the start to the plugin's line: interpreters and their imports are slow
    connect: float = 10.0  # from the line to the first answer
    stop_grace: float = 5.0  # from SIGTERM to SIGKILL
    health_interval: float = 5.0
    health_timeout: float = 5.0
    health_failures: int = 3  # in a row, until it is restarted
    backoff_first: float = 0.5
    backoff_max: float = 60.0
    stable_after: float = 60.0  # a run that lasted this long resets the backoff


# -- One run -----------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.plugins")

_LONGEST_BASE = 55  # a unix socket's whole path has about 100 characters
_WATCHDOG_START = 10.0  # seconds; takes milliseconds on a machine that is not overloaded
_WATCHDOG_MARGIN = 15.0  # beyond the grace period: the watchdog kills for ten seconds, then gives up
_MOMENT = 1.0  # between the end of a process and the notice of it
_LAST_OUTPUT = 5.0  # for reading the remaining output; it is in the pipe already, so only a busy machine needs the time


class CannotStartError(PluginError):
    """The program does not exist or may not be executed. A person has to fix it."""


class Child:
    """A running plugin that has completed its handshake. Created by :func:`launch`."""

    def __init__(self, spec: PluginSpec, timing: Timing, log: OutputLog | None = None) -> None:
        """``log`` receives its output; a supervisor has one for all runs of a plugin."""
        self.spec = spec
        self.directory = _private_directory()
        self.tls = HostTls()
        self.pid = 0
        self.handshake = Handshake(network="", address="")
        self._timing = timing
        self._output = Output(log or OutputLog(spec.name))
        self._watchdog: asyncio.subprocess.Process | None = None
        self._control: asyncio.StreamWriter | None = None
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Task[int] | None = None

    async def wait(self) -> str:
        """Waits until the plugin has ended; returns how it ended, with its last output."""
        return await self._wait_for_end() + self._output.last_words()

    async def _wait_for_end(self) -> str:
        assert self._ended is not None  # noqa: S101 - launch() has started it
        code = await asyncio.shield(self._ended)
        await self._output.read_rest(_LAST_OUTPUT)
        return f"was ended by {_signal_name(code - 128)}" if code > 128 else f"exited with code {code}"

    async def stop(self) -> None:
        """Ends the plugin and all its descendants: SIGTERM, then SIGKILL after the grace period."""
        if self._control is not None and self._control.can_write_eof():
            with contextlib.suppress(OSError):
                self._control.write_eof()  # the other direction stays open: its end shows that the watchdog has ended
        if self._ended is not None:
            await asyncio.wait({self._ended}, timeout=self._timing.stop_grace + _WATCHDOG_MARGIN)
            if not self._ended.done():
                log.error("the watchdog of a plugin hangs and is killed", extra={"plugin": self.spec.name})
                self._kill()
                await asyncio.wait({self._ended}, timeout=_WATCHDOG_MARGIN)
        if self._control is not None:
            self._control.close()
        await self._output.end(_LAST_OUTPUT)
        shutil.rmtree(self.directory, ignore_errors=True)  # the watchdog has removed it, unless it was killed

    async def start(self) -> None:
        """Starts the program under a watchdog; raises :class:`CannotStartError` when it cannot be executed."""
        self.tls.write(tls_directory(self.directory))
        opening = asyncio.create_task(self._open())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # asyncio kills a process whose start is interrupted. That would be the watchdog, before it can clean up.
            await asyncio.wait({opening})
            raise
        try:
            async with asyncio.timeout(_WATCHDOG_START):
                self._read_answer(await asyncio.shield(self._answer))
        except TimeoutError:
            raise PluginError("its watchdog did not start it in time: is this machine overloaded?") from None

    async def shake_hands(self) -> None:
        """Waits for the plugin's line; raises :class:`HandshakeError` that quotes what came instead."""
        line = asyncio.create_task(self._output.handshake())
        closed = asyncio.create_task(self._output.stdout_closed.wait())
        try:
            await asyncio.wait({line, closed}, timeout=self._timing.handshake, return_when=asyncio.FIRST_COMPLETED)
            if self._output.has_handshake:  # even when stdout was closed right after it
                self.handshake = await line
            elif closed.done():
                raise HandshakeError(await self._how_it_closed())
            else:
                evidence = self._output.evidence() or "; it printed nothing at all"
                raise HandshakeError(f"it printed no handshake within {self._timing.handshake:g} s{evidence}")
        finally:
            line.cancel()
            closed.cancel()

    async def _how_it_closed(self) -> str:
        how = "closed its stdout without a handshake"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT):  # mostly it has exited, and its exit says more
                how = f"{await self._wait_for_end()} before its handshake"
        return f"it {how}{self._output.evidence()}"

    async def _open(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._watchdog = await self._start_watchdog(theirs)
                control, self._control = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
        assert self._watchdog.stdout is not None  # noqa: S101 - both are pipes
        assert self._watchdog.stderr is not None  # noqa: S101
        self._output.follow(self._watchdog.stdout, self._watchdog.stderr)
        self._ended = asyncio.create_task(self._listen(self._watchdog, control))

    async def _start_watchdog(self, control: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", child_guard.__file__),
            *("0", str(self._timing.stop_grace), str(self.directory), self.spec.cwd or "", *self.spec.command),
            stdin=control.fileno(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(
                os.environ | self.spec.env,
                client_certificate=self.tls.client.certificate,
                directory=self.directory,
                options=self.spec.options,
            ),
            start_new_session=True,  # Ctrl-C in a terminal is for cloudgraft, which then stops its plugins in order
        )

    def _read_answer(self, answer: str) -> None:
        word, _, rest = answer.partition(" ")
        if word == "failed":
            _, _, reason = rest.partition(" ")
            raise CannotStartError(f"it cannot be started: {reason}")
        if word != "pid":
            raise PluginError(f"its watchdog ended before it could start it{self._output.last_words()}")

    async def _listen(self, process: asyncio.subprocess.Process, control: asyncio.StreamReader) -> int:
        """Reads the watchdog's line and waits for its end; returns the plugin's exit code."""
        with contextlib.suppress(OSError):
            answer = (await control.readline()).decode(errors="replace").strip()
            self.pid = int(answer.removeprefix("pid ")) if answer.startswith("pid ") else 0
            self._answer.set_result(answer)
            # The watchdog's end of the socket closes as soon as it ends. wait() may hang on a pipe that a process still
            # holds which outlived a killed watchdog.
            await control.read()
        if not self._answer.done():
            self._answer.set_result("")
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MOMENT):
                    await process.wait()
                break
            self._kill()
        if process.returncode is None or process.returncode < 0:
            self._kill_group()
            return 128 + signal.SIGKILL
        return process.returncode

    def _kill(self) -> None:
        self._kill_group()
        if self._watchdog is not None:
            with contextlib.suppress(ProcessLookupError):
                self._watchdog.kill()

    def _kill_group(self) -> None:
        # When the watchdog is killed, the kernel kills the plugin, but not its descendants.
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


async def launch(spec: PluginSpec, timing: Timing, log: OutputLog | None = None) -> Child:
    """Starts a plugin and waits for its handshake. After any error, none of its processes is left running."""
    child = Child(spec, timing, log)
    try:
        await child.start()
        await child.shake_hands()
    except BaseException:
        # Shielded: a second cancellation must not leave a process behind either.
        await asyncio.shield(asyncio.ensure_future(child.stop()))
        raise
    return child


def _private_directory() -> Path:
    """Creates a directory that only we can enter, with a path short enough for a unix socket."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_BASE and Path("/tmp").is_dir():  # noqa: S108 - mkdtemp makes it private
        base = "/tmp"  # noqa: S108 - likewise
    return Path(tempfile.mkdtemp(prefix="cloudgraft-plugin-", dir=base))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
