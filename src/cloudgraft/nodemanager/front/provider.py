"""A node manager, as the autoscaler's front uses it: every answer from memory, every change one request.

The front keeps nothing but what it was told; several of them may share one manager. It is told of changes the moment
they happen, by a request that waits for them, and of its own changes by the answers to them (R27).

It is no provider behind a :class:`~cloudgraft.service.snapshot.SnapshotProvider`, because that asks for every group
and for every price: a snapshot has all of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cloudgraft.engine.groups.prices import node_price, pod_price
from cloudgraft.nodemanager.front.link import ManagerLink
from cloudgraft.nodemanager.front.views import View, Views
from cloudgraft.nodemanager.snapshot import Revision
from cloudgraft.sdk.backoff import Backoff
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError, UnsupportedError
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.template_nodes import group_of_template
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod

__all__ = ["FrontSettings", "NodeManagerProvider"]

log = logging.getLogger("cloudgraft.front")

_LONGEST_WAIT: Final = 20.0  # seconds that a request waits for news
_FIRST_PAUSE: Final = 0.2  # seconds until a manager that is away is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """How fresh is fresh. All in seconds."""

    refresh_every: float = 5.0  # while things change all the time: so often is read, and before every loop
    max_staleness: float = 300.0  # older than this, refresh() fails
    refresh_limit: float = 1.0  # that a Refresh may take from the autoscaler for the manager's own
    catch_up_limit: float = 0.5  # in which the request that waits for news ought to have brought them
    own_read_limit: float = 1.5  # for a request of one's own after that

    @property
    def wait(self) -> float:
        """How long a request waits for news."""
        return min(_LONGEST_WAIT, self.max_staleness / 3)


class NodeManagerProvider(Provider):
    """The groups of a node manager."""

    def __init__(
        self,
        link: ManagerLink,
        *,
        name: str = "node-manager",
        settings: FrontSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name`` is for logs and messages; ``clock`` tells the seconds by which things age."""
        self.name = name
        self._link = link
        self._settings = settings or FrontSettings()
        self._clock = clock
        self._views = Views()
        self._read_at: float | None = None
        self._trouble = "has not answered yet"
        self._wake = asyncio.Event()
        self._news = asyncio.Event()  # replaced each time that something was read
        self._task: asyncio.Task[None] | None = None

    # -- what an operator may ask ------------------------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since the manager was last heard of; infinite before the first time."""
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    @property
    def trouble(self) -> str:
        """Why the manager could not be read the last time; empty when it could."""
        return self._trouble

    @property
    def requests(self) -> int:
        """How many requests were sent to the manager."""
        return self._link.requests

    # -- reads, from memory ------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """The groups as of the last Refresh."""
        self._must_have_been_read()
        return self._views.shown

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """By all ids and names that the manager knows, those of machines that are gone included (R16-R24)."""
        self._must_have_been_read()
        return self._views.shown_group_of(node)

    async def target_size(self, group: str) -> int:
        """As last told."""
        return self._view(group).target

    async def instances(self, group: str) -> Sequence[Instance]:
        """As last told."""
        return self._view(group).instances()

    async def template(self, group: str) -> NodeTemplate:
        """As last told."""
        return self._view(group).template

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """What the group overrides."""
        return self._view(group).options

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """R81: of a template by its name, of a real node by its machine."""
        self._must_have_been_read()
        group = group_of_template(node.name, self._views.views) or self._views.group_of(node)
        view = self._views.views.get(group or "")
        if view is None or view.price is None:
            raise NotFoundError(f"no price is known for node {node.name!r}; set `price` for its group")
        return node_price(view.price.amount, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """R82: what the pod asks for, at the reference price of all groups."""
        self._must_have_been_read()
        if self._views.reference is None:
            raise UnsupportedError("no node group has a price; set `price` for them")
        return pod_price(pod_requests(pod), start, end, self._views.reference)

    async def gpu_label(self) -> str:
        """As last told."""
        return self._views.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """As last told."""
        return self._views.gpu_types

    # -- changes, one request each -----------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """Asked of the manager; the new target shows at once."""
        await self._change(group, "increase", {"delta": delta})

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Asked of the manager; the machines show as being deleted at once."""
        named = [{"name": node.name, "providerId": node.provider_id} for node in nodes]
        await self._change(group, "deleteNodes", {"nodes": named})

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Asked of the manager; the target shows at once."""
        await self._change(group, "decreaseTarget", {"delta": delta})

    async def _change(self, group: str, verb: str, body: Mapping[str, object]) -> None:
        view = self._view(group)
        try:
            made = await self._link.change(group, verb, body, view.revision)
        except BaseException:
            self._wake.set()  # whether it was done is not known: look soon
            raise
        if made.group is None or not self._views.take_group(made.revision.manager, made.group):
            await self._catch_up(made.revision)

    # -- life --------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Has the manager refresh, and shows what came of it. Fails when the manager says so, or when it has not been
        heard of for too long; one that is away for a while is no reason (law 6).
        """
        self._must_have_been_read()
        try:
            revision = await self._link.refresh(self._settings.refresh_limit)
        except CloudgraftError as error:
            self._wake.set()
            if error.retry_after is not None:  # it answers: its journal cannot be written, or it does not lead
                raise
        else:
            if revision is not None:
                await self._catch_up(revision)
        self._views.publish()
        if self.age > self._settings.max_staleness:
            raise UnavailableError(
                f"node manager {self.name} has not been heard of for {self.age:.0f} s: {self.trouble}"
            )

    async def cleanup(self) -> None:
        """Passed on."""
        await self._link.cleanup()

    async def start(self) -> None:
        """Reads the manager once. One that is away is tried again in the background."""
        with suppress(CloudgraftError):
            await self._read(0.0)
        self._task = asyncio.create_task(self._keep_reading(), name=f"front of {self.name}")

    async def close(self) -> None:
        """Stops reading and closes the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    # -- the background ----------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        backoff = Backoff(first=_FIRST_PAUSE, longest=self._settings.refresh_every)
        while True:
            began = self._clock()
            try:
                has_news = await self._read(self._settings.wait)
            except Exception as error:  # whatever it was: a front that reads no more is blind for good
                if not isinstance(error, CloudgraftError):
                    log.exception("a snapshot of the node manager could not be taken in", extra={"provider": self.name})
                    self._note_trouble(f"tells what cannot be taken in: {type(error).__name__}")
                await self._sleep(backoff.next())
                continue
            backoff.reset()
            if has_news:  # the next ones are awaited together, unless a loop begins
                await self._sleep(self._settings.refresh_every - (self._clock() - began))

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        self._wake.clear()

    async def _read(self, wait: float) -> bool:
        """Reads what is new; whether there was anything."""
        try:
            snapshot = await self._link.news(self._views.revision, wait)
        except CloudgraftError as error:
            self._note_trouble(f"answers {error.slug}: {error.message}")
            raise
        if snapshot is not None:
            self._views.take(snapshot)
        if self._read_at is None:
            self._views.publish()
        self._heard()
        news, self._news = self._news, asyncio.Event()
        news.set()
        return snapshot is not None

    def _heard(self) -> None:
        """What is known here is how it was at the manager a moment ago."""
        self._read_at = self._clock()
        self._note_trouble("")

    async def _catch_up(self, revision: Revision) -> None:
        """Until that revision is known here: by the request that waits for news or, should that hang on a connection
        that is dead, or at a manager that leads no more, by one of our own.
        """
        if self._has(revision):
            self._heard()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.catch_up_limit if self._task is not None else 0.0):
                while not self._has(revision):
                    news = self._news
                    self._wake.set()
                    await news.wait()
                return
        with suppress(CloudgraftError, TimeoutError):
            async with asyncio.timeout(self._settings.own_read_limit):
                await self._read(0.0)

    def _has(self, revision: Revision) -> bool:
        known = self._views.revision
        return known is not None and known.manager == revision.manager and known.number >= revision.number

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _view(self, group: str) -> View:
        self._must_have_been_read()
        try:
            return self._views.views[group]
        except KeyError:
            raise NotFoundError(f"there is no node group {group!r} in node manager {self.name}") from None

    def _must_have_been_read(self) -> None:
        if self._read_at is None:
            raise UnavailableError(f"node manager {self.name} {self._trouble}")

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            about = {"provider": self.name, "address": self._link.address}
            if trouble:
                log.warning("the node manager cannot be read", extra={**about, "error": trouble})
            else:
                log.info("the node manager is read", extra={**about, "groups": len(self._views.views)})
        self._trouble = trouble
