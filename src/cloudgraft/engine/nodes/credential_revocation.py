"""Revokes join credentials after a machine joins or fails."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.sdk.common.backoff import pause_after
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, RateLimitedError, UnavailableError
from cloudgraft.store.records import MachineRecord, State

log = logging.getLogger("cloudgraft.engine")

_AT_A_TIME: Final = 4
_TIMEOUT: Final = 30.0  # seconds
_TRIES: Final = 5
_AGAIN: Final = 10.0  # seconds before the first retry; doubled after every failure,
_SELDOM: Final = 160.0  # up to this
_DUE_FOR: Final = 24 * 3600.0  # seconds after the latest create call: older credentials have expired
# Temporary errors: revocation is tried again.
_AWAY: Final = (UnavailableError, DeadlineError, RateLimitedError, TimeoutError)
_OVER: Final = frozenset({State.FAILED, State.DELETING, State.GONE})


class CredentialRevocation:
    """Revokes the credentials of one cloud's machines in the background. Nothing waits for it.

    The journal does not record it: after a restart it is done again for the machines of the last day.
    """

    def __init__(self, context: EngineContext, on_done: Callable[[], None]) -> None:
        """``on_done`` is called when there may be room for the next revocation."""
        self._context = context
        self._on_done = on_done
        self._taken: set[str] = set()  # machines whose revocation waits, or is done
        self._waiting: dict[str, float] = {}  # earliest time by machine
        self._tries: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self, record: MachineRecord, observation: Observation, now: float) -> None:
        """Queues a machine that no longer needs its credentials."""
        if self._context.user_data is None or record.name in self._taken or record.attempt_at is None:
            return
        if self._context.observes_only(record.cloud):
            return  # revoking a token writes to the cluster; the token expires by itself
        is_due = observation.node.joined is True or (record.state in _OVER and not observation.calls.is_open)
        if is_due and now - record.attempt_at < _DUE_FOR:
            self._taken.add(record.name)
            self._waiting[record.name] = now

    def wake_at(self) -> float | None:
        """When the next revocation is due."""
        is_held = len(self._tasks) >= _AT_A_TIME or not self._context.may_act()
        return None if is_held else min(self._waiting.values(), default=None)

    def go_on(self, now: float) -> None:
        """Starts the revocations that are due."""
        if len(self._taken) > len(self._context.fleet.machines):
            self._taken &= self._context.fleet.machines.keys()  # drops machines that the journal has forgotten
        free = _AT_A_TIME - len(self._tasks)
        if free <= 0 or not self._waiting or not self._context.may_act():
            return
        for name in [name for name, at in self._waiting.items() if at <= now][:free]:
            del self._waiting[name]
            task = asyncio.create_task(self._settle(name), name=f"settle {name}")
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def done(self) -> None:
        """Waits for revocations under way. For tests and the demo."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Cancels revocations under way: they are done after the restart."""
        for task in self._tasks:
            task.cancel()
        await self.done()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._on_done()

    async def _settle(self, name: str) -> None:
        user_data = self._context.user_data
        if user_data is None:
            return
        try:
            async with asyncio.timeout(_TIMEOUT):
                await contained(user_data.settle(name))
        except Exception as error:  # noqa: BLE001 - it is logged, and the credentials expire by themselves
            self._tries[name] += 1
            self._note_failure(name, self._tries[name], error)
        else:
            self._tries.pop(name, None)

    def _note_failure(self, name: str, tries: int, error: Exception) -> None:
        now, record = self._context.clock.now(), self._context.fleet.machines.get(name)
        is_due = record is not None and record.attempt_at is not None and now - record.attempt_at < _DUE_FOR
        if tries < _TRIES or (is_due and isinstance(error, _AWAY)):
            self._waiting[name] = now + pause_after(tries, first=_AGAIN, longest=_SELDOM)
            return
        del self._tries[name]
        told = {"machine": name, "error": error.message if isinstance(error, CloudgraftError) else type(error).__name__}
        log.warning("a machine's join credentials were not revoked; they expire by themselves", extra=told)
