"""Runs the commands of the server's author: with a time limit, and never left running by a cancelled kit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import IO, Any, Final, TypeVar

from cloudgraft.conformance.check import Need
from cloudgraft.conformance.kit import BeginEnd, KitConfig
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import DeadlineError, InternalError

_T = TypeVar("_T")
_log = logging.getLogger("cloudgraft.conformance")
_SHOWN: Final = 400  # characters of what a failed command wrote last
_GRACE: Final = 2.0  # seconds between asking a command to end and making it


class HookRunner:
    """Runs the commands of a kit's config."""

    def __init__(self, config: KitConfig) -> None:
        self._hooks = config.hooks
        self._limit = config.patience.hook

    @asynccontextmanager
    async def during(self, need: Need) -> AsyncIterator[None]:
        """Holds a state of the cloud within the block. The end command runs in any case, also when cancelled."""
        commands = self._hooks.stock_out if need is Need.STOCK_OUT else self._hooks.slow_cloud
        if not isinstance(commands, BeginEnd):
            raise InternalError(f"the hook {need.value} has no begin and end")
        try:
            await self._run(f"{need.value}.begin", commands.begin)
            yield
        finally:
            await to_its_end(self._run(f"{need.value}.end", commands.end))

    async def restart(self) -> None:
        """Restarts the server."""
        await self._run("restart", self._hooks.restart or ())

    async def lose(self, instance: str) -> None:
        """Destroys a machine without the server."""
        command = [part.replace("{id}", instance) for part in self._hooks.lost_machine or ()]
        await self._run("lostMachine", command)

    async def _run(self, name: str, command: Sequence[str]) -> None:
        if not command:
            raise InternalError(f"the hook {name} has no command")
        # A file and not a pipe: a command that leaves a server running would never close a pipe.
        with tempfile.TemporaryFile() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                raise InternalError(f"the hook {name} cannot be started ({shlex.join(command)}): {error}") from error
            code = await _waited(process, name, self._limit)
            if code != 0:
                said = _tail(output)
                raise InternalError(f"the hook {name} ({shlex.join(command)}) ended with {code}: {said or 'no word'}")


async def _waited(process: asyncio.subprocess.Process, name: str, limit: timedelta) -> int:
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await process.wait()
    except TimeoutError:
        raise DeadlineError(f"the hook {name} did not end within {format_duration(limit)}") from None
    finally:
        if process.returncode is None:
            await to_its_end(_end_group(process))


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Ends the command and all processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
                return


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Waits for a task that must finish, however often this task is cancelled. It must have its own limit."""
    task, is_cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if not is_cancelled:
        return task.result()
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s", error)  # the result is not read
    raise asyncio.CancelledError


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()[-_SHOWN:]
