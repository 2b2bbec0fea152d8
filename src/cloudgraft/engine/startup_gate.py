"""Refuses calls after a start until every new cloud was listed once, or the time limit is over.

A cloud is new if the journal has never taken in its machines. Before its first list the engine does not know which of
its machines are ours (law 11). An empty list of groups, or "not ours" for a node that is, does more harm than
UNAVAILABLE, after which the autoscaler tries again (R3, R12).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Final

from cloudgraft.engine.fleet import Fleet
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError

log = logging.getLogger("cloudgraft.engine")

_LOOK: Final = 0.5  # seconds between two checks whether the clouds were listed


class StartupGate:
    """The wait after a start or an election. The gate never waits for a cloud that a reload adds."""

    def __init__(
        self,
        fleet: Fleet,
        workers: Collection[str],
        refresh: Callable[[], Awaitable[None]],
        why_not_listed: Callable[[str], str],
    ) -> None:
        """``workers`` are the names of the currently configured clouds; ``refresh`` brings the groups up to date."""
        self._fleet = fleet
        self._workers = workers
        self._refresh = refresh
        self._why_not_listed = why_not_listed
        self.awaited: frozenset[str] = frozenset()  # the clouds; when there are none, calls are answered
        self._limit = timedelta(0)
        self._time: Callable[[], float] = float
        self._ends = 0.0
        self._task: asyncio.Task[None] | None = None

    def begin(self, limit: timedelta, time: Callable[[], float], *, is_stepped: bool) -> None:
        """Begins to wait for new clouds, for at most ``limit``. If stepped, only calls of :meth:`look` check them."""
        self.awaited = frozenset(self._workers) - self._fleet.adopted_clouds
        self._limit, self._time, self._ends = limit, time, time() + limit.total_seconds()
        if self.awaited:
            log.warning("calls are refused: %s", self.trouble())
            self._task = None if is_stepped else asyncio.create_task(self._keep_looking(), name="first lists")

    async def stop(self) -> None:
        """Stops waiting."""
        self.awaited = frozenset()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def trouble(self) -> str:
        """Why calls are refused; empty when they are answered."""
        if not self.awaited:
            return ""
        missing = self._missing() or sorted(self.awaited)  # all were listed, and their groups are not published yet
        clouds = [f"{cloud} ({why})" if (why := self._why_not_listed(cloud)) else cloud for cloud in missing]
        return (
            f"waiting for the first list of {_clouds(clouds)}: which machines there are ours is not known yet. Calls "
            f"are refused for at most {format_duration(self._limit)} (engine.firstListTimeout); then the groups of "
            "clouds that were not listed are left out"
        )

    async def look(self) -> None:
        """Ends the wait if possible. No call was answered yet, so groups may be published without a Refresh (R4)."""
        if not self.awaited:
            return
        missing, is_late = self._missing(), self._time() >= self._ends
        try:
            await self._refresh()  # after the check: the first answers need the groups of all clouds listed by then
        except CloudgraftError as error:
            log.debug("the groups could not be brought up to date", extra={"error": error.message})
            if not is_late:
                return
        if missing and not is_late:
            return
        self.awaited = frozenset()
        if missing:
            log.warning("answering calls without the groups of %s: no list has succeeded yet", _clouds(missing))
        else:
            log.info("answering calls: every cloud was listed")

    async def _keep_looking(self) -> None:
        while self.awaited:
            await asyncio.sleep(_LOOK)
            try:
                await self.look()
            except Exception:  # a bug must not end the loop that every call waits for
                log.exception("the check whether clouds were listed failed")

    def _missing(self) -> list[str]:
        """The clouds still waited for, without those that a reload removed."""
        return sorted(self.awaited & frozenset(self._workers) - self._fleet.adopted_clouds)


def _clouds(names: Collection[str]) -> str:
    return f"cloud{'' if len(names) == 1 else 's'} {', '.join(names)}"
