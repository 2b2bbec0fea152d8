"""Scans the nodes of all machines of a cloud, in slices."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.nodes.template_learner import TemplateLearner
from cloudgraft.engine.nodes.tracking import NodeCount
from cloudgraft.engine.reconcile.observer import SLICE, Observer
from cloudgraft.sdk.slices import in_slices

_EVERY: Final = 1.0  # seconds between two scans caused by changed nodes, at least


class NodeScan:
    """Updates the observations of one cloud's machines from the cluster, counts nodes, and runs template learning."""

    def __init__(self, observer: Observer, context: EngineContext) -> None:
        self.template_learner = TemplateLearner(context)
        self._observer = observer
        self._context = context
        self._has_news = False
        self._called_at = 0.0
        self._lock = asyncio.Lock()

    def note(self) -> None:
        """Notes that nodes have come, gone or changed."""
        self._has_news = True

    def wake_at(self) -> float | None:
        """When to scan because of noted changes."""
        is_due = self._has_news and self._context.nodes.cluster is not None
        return self._called_at + _EVERY if is_due else None

    async def call(self, *, only_news: bool = False) -> list[str]:
        """Scans all machines; returns the names of those whose nodes came, went, or changed their readiness.

        ``only_news``: only if changes were noted and the latest scan was not too recent.
        """
        at = self.wake_at()
        if self._context.nodes.cluster is None or (only_news and (at is None or at > self._context.clock.now())):
            return []
        async with self._lock:
            self._has_news, self._called_at = False, self._context.clock.now()
            return await self._see_all()

    async def _see_all(self) -> list[str]:
        nodes, cloud = self._context.nodes, self._observer.name
        nodes.watch(self._called_at)
        counts: dict[str, NodeCount] = {}
        changed: list[str] = []
        self.template_learner.begin()
        async for some in in_slices(list(self._context.fleet.in_cloud(cloud).values()), SLICE):
            for record in some:
                observation = self._observer.observation(record.name)
                before = observation.joined, observation.unready_since
                nodes.see(record, observation)
                if (observation.joined, observation.unready_since) != before:
                    changed.append(record.name)
                count = counts.setdefault(record.group, NodeCount())
                count.joined += observation.joined is True
                count.unready += observation.unready_since is not None
                self.template_learner.look_at(record, observation)
        if nodes.is_known:
            nodes.count(cloud, counts)
        return changed

    async def study(self) -> None:
        """Runs template learning on the scanned nodes."""
        if self._context.nodes.is_known:
            async with self._lock:
                await self.template_learner.study()
