"""Serialises the changes of each group, and completes a change even if its caller gives up.

If the caller gives up before its change has begun, nothing changes. Once a change has begun, it runs to its end,
because "done once" and "not done" are the only outcomes that the autoscaler can handle (T7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cloudgraft.sdk.contain import contained, follow_caller

log = logging.getLogger("cloudgraft.service")


@dataclass(slots=True, eq=False)
class _Change:
    label: str
    started: bool = False
    abandoned: bool = False


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Mutations:
    """Serialises the changes of each group; different groups do not wait for each other (R46, R89)."""

    def __init__(self, on_late: Callable[[str], None]) -> None:
        self._queues: dict[str, _Queue] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._on_late = on_late

    async def run(self, group: str, label: str, change: Callable[[], Awaitable[None]]) -> None:
        """Waits for the group's earlier changes, then makes this one."""
        mine = _Change(label)
        task = asyncio.create_task(self._in_turn(group, mine, change), name=f"{label} {group}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if mine.started:
                mine.abandoned = True
            else:
                task.cancel()
            raise

    async def drain(self, seconds: float) -> None:
        """Waits at most this long for changes under way."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def _in_turn(self, group: str, mine: _Change, change: Callable[[], Awaitable[None]]) -> None:
        queue = self._queues.setdefault(group, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                mine.started = True
                follow_caller(lambda: mine.abandoned)
                await contained(change())
        except Exception as error:
            if not mine.abandoned:
                raise
            log.warning(
                "a change failed after its caller had given up",
                extra={"rpc": mine.label, "group": group, "error": str(error)},
            )
            self._on_late(mine.label)
        else:
            if mine.abandoned:
                log.warning(
                    "a change was made after its caller had given up", extra={"rpc": mine.label, "group": group}
                )
                self._on_late(mine.label)
        finally:
            queue.users -= 1
            if queue.users == 0:
                self._queues.pop(group, None)
