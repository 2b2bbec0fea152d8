"""Provides a node manager's groups to the autoscaler: reads from memory, one request for each change.

The front stores only what the manager sent; several fronts may share one manager. It learns of changes as they happen,
by a request that waits for them, and of its own changes by their responses (R27).

It does not stand behind a :class:`~cloudgraft.service.snapshot.SnapshotProvider`, because that asks for every group
and for every price: a snapshot has all of it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from cloudgraft.engine.groups.prices import node_price, pod_price
from cloudgraft.nodemanager.front.views import View, Views
from cloudgraft.nodemanager.snapshot import GROUP, KNOWN, SNAPSHOT, WHAT, GroupSnapshot, Known, Revision, Snapshot
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.template_nodes import group_of_template
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod
from cloudgraft.web.client import Answer, WebClient

# -- Requests to the node manager --------------------------------------------------------------------------------------


_SLICE: Final = 250  # machines that are read before other tasks run
_FIRST_SHARE: Final = 0.6  # share of a change's time limit that the first attempt may use
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Changed:
    """A manager's response to a change: the group as it is now, if it still exists."""

    revision: Revision
    group: GroupSnapshot | None


class ManagerLink:
    """Calls one node manager, or several behind one address."""

    def __init__(self, client: WebClient, *, timeout: float) -> None:
        """``timeout`` is for each request except the one that waits for changes, in seconds."""
        self._client = client
        self._timeout = timeout
        self.requests = 0  # all requests sent

    @property
    def address(self) -> str:
        """The address of the manager."""
        return self._client.address

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def news(self, since: Revision | None, wait: float) -> Snapshot | None:
        """What is newer than the revision, as soon as there is something; None when nothing came in ``wait`` s."""
        query, headers = {"wait": f"{wait:g}"}, {}
        if since is not None:
            query["since"], headers["If-None-Match"] = str(since), f'"{since}"'
        answer = await self._send("GET", "/v1/snapshot", query=query, headers=headers, timeout=wait + self._timeout)
        return None if answer.status == _NOT_MODIFIED else await _snapshot(answer.json)

    async def refresh(self, seconds: float) -> Revision | None:
        """Makes the manager apply configuration changes; returns the resulting revision."""
        answer = await self._send("POST", "/v1/refresh", timeout=min(seconds, self._timeout))
        return Revision.parse(answer.headers.get("etag", "").strip('"'))

    async def cleanup(self) -> None:
        """Tells the manager that the autoscaler is shutting down."""
        await self._send("POST", "/v1/cleanup", timeout=self._timeout)

    async def change(self, group: str, verb: str, body: Mapping[str, object], since: Revision) -> Changed:
        """Requests a change, and repeats a lost one under the same key, so that it is made once."""
        path, key = f"/v1/nodegroups/{quote(group, safe='')}:{verb}", secrets.token_hex(16)
        until = time.monotonic() + self._timeout

        async def ask(seconds: float) -> Answer:
            headers = {"Idempotency-Key": key, "Prefer": f"wait={seconds:.3f}"}  # after that the caller has timed out
            return await self._send(
                "POST", path, json=body, headers=headers, query={"since": str(since)}, timeout=seconds
            )

        try:
            answer = await ask(self._timeout * _FIRST_SHARE)
        except (DeadlineError, UnavailableError) as error:
            if error.retry_after is not None:  # the manager responded: it is unavailable for now
                raise
            answer = await ask(max(0.1, until - time.monotonic()))
        return await _changed(answer.json)

    async def _send(self, method: str, path: str, **how: Any) -> Answer:
        self.requests += 1
        return await self._client.request(method, path, **how)


async def _snapshot(data: Any) -> Snapshot:
    groups = [await _group(entry) for entry in _list(data, "groups")]
    return replace(SNAPSHOT.read(data, WHAT), groups=groups)


async def _group(data: Any) -> GroupSnapshot:
    entries = _list(data, "machines")
    machines: list[Known] = []
    async for some in in_slices(entries, _SLICE):
        machines += [KNOWN.read(entry, f"a machine of {WHAT}") for entry in some]
    await asyncio.sleep(0)  # a large group, or many, must not keep the autoscaler's calls waiting (law 1)
    return replace(GROUP.read(data, WHAT), machines=machines)


async def _changed(data: Any) -> Changed:
    """The change was made: if the response is unreadable, the next snapshot shows the result."""
    revision = Revision.parse(str(data.get("revision", ""))) if isinstance(data, dict) else None
    if revision is None:
        raise InternalError("the node manager made the change, but its response is unreadable: is it another release?")
    try:
        group = await _group(data["picture"]) if data.get("picture") is not None else None
    except CloudgraftError:
        group = None
    return Changed(revision, group)


def _list(data: Any, key: str) -> Sequence[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise InternalError(f"the node manager's answer has no {key}: is it a node manager, and of this release?")
    return found


log = logging.getLogger("cloudgraft.front")

_LONGEST_WAIT: Final = 20.0  # seconds that a request waits for changes
_FIRST_PAUSE: Final = 0.2  # seconds until an unavailable manager is retried


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """Limits for freshness. All in seconds."""

    refresh_every: float = 5.0  # the read interval while things change all the time; each loop reads too
    max_staleness: float = 300.0  # older than this, refresh() fails
    refresh_limit: float = 1.0  # time that a Refresh may spend on the manager's own
    catch_up_limit: float = 0.5  # in which the waiting request should have delivered the changes
    own_read_limit: float = 1.5  # for a separate request after that

    @property
    def wait(self) -> float:
        """How long a request waits for changes."""
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
        """``name`` is for logs and messages; ``clock`` returns seconds."""
        self.name = name
        self._link = link
        self._settings = settings or FrontSettings()
        self._clock = clock
        self._views = Views()
        self._read_at: float | None = None
        self._trouble = "has not answered yet"
        self._wake = asyncio.Event()
        self._news = asyncio.Event()  # replaced after each read
        self._task: asyncio.Task[None] | None = None

    # -- for operators -------------------------------------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since the manager's last response; infinite before the first."""
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    @property
    def trouble(self) -> str:
        """Why the last read of the manager failed; empty when it succeeded."""
        return self._trouble

    @property
    def requests(self) -> int:
        """The number of requests sent to the manager."""
        return self._link.requests

    # -- reads, from memory --------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """The groups as of the last Refresh."""
        self._must_have_been_read()
        return self._views.shown

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """By all ids and names that the manager knows, including those of machines that are gone (R16-R24)."""
        self._must_have_been_read()
        return self._views.shown_group_of(node)

    async def target_size(self, group: str) -> int:
        """From the last snapshot."""
        return self._view(group).last.target

    async def instances(self, group: str) -> Sequence[Instance]:
        """From the last snapshot."""
        return self._view(group).instances()

    async def template(self, group: str) -> NodeTemplate:
        """From the last snapshot."""
        return self._view(group).last.template

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """The options that the group overrides."""
        return self._view(group).last.options

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """R81: a template's price by its name, a real node's by its machine."""
        self._must_have_been_read()
        group = group_of_template(node.name, self._views.views) or self._views.group_of(node)
        view = self._views.views.get(group or "")
        if view is None or view.last.price is None:
            raise NotFoundError(f"no price is known for node {node.name!r}; set `price` for its group")
        return node_price(view.last.price.amount, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """R82: the pod's requests at the reference price of all groups."""
        self._must_have_been_read()
        if self._views.reference is None:
            raise UnsupportedError("no node group has a price; set `price` for them")
        return pod_price(pod_requests(pod), start, end, self._views.reference)

    async def gpu_label(self) -> str:
        """From the last snapshot."""
        return self._views.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """From the last snapshot."""
        return self._views.gpu_types

    # -- changes, one request each -------------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """Asks the manager; the new target shows at once."""
        await self._change(group, "increase", {"delta": delta})

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Asks the manager; the machines show as being deleted at once."""
        named = [{"name": node.name, "providerId": node.provider_id} for node in nodes]
        await self._change(group, "deleteNodes", {"nodes": named})

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Asks the manager; the new target shows at once."""
        await self._change(group, "decreaseTarget", {"delta": delta})

    async def _change(self, group: str, verb: str, body: Mapping[str, object]) -> None:
        view = self._view(group)
        try:
            made = await self._link.change(group, verb, body, view.revision)
        except BaseException:
            self._wake.set()  # the outcome is unknown: read soon
            raise
        if made.group is None or not self._views.take_group(made.revision.manager, made.group):
            await self._catch_up(made.revision)

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Makes the manager refresh, and shows the result.

        Fails when the manager fails, or has not responded for too long. A short outage is no failure (law 6).
        """
        self._must_have_been_read()
        try:
            revision = await self._link.refresh(self._settings.refresh_limit)
        except CloudgraftError as error:
            self._wake.set()
            if error.retry_after is not None:  # it responds: it cannot write its journal, or does not lead
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
        """Forwards the call."""
        await self._link.cleanup()

    async def start(self) -> None:
        """Reads the manager once. Retries an unavailable one in the background."""
        with suppress(CloudgraftError):
            await self._read(0.0)
        self._task = asyncio.create_task(self._keep_reading(), name=f"front of {self.name}")

    async def close(self) -> None:
        """Stops reading and closes the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    # -- background ----------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        backoff = Backoff(first=_FIRST_PAUSE, longest=self._settings.refresh_every)
        while True:
            began = self._clock()
            try:
                has_news = await self._read(self._settings.wait)
            except Exception as error:  # on any error: a front that stops reading is outdated for ever
                if not isinstance(error, CloudgraftError):
                    log.exception("cannot apply a snapshot of the node manager", extra={"provider": self.name})
                    self._note_trouble(f"sent a snapshot that cannot be applied: {type(error).__name__}")
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
        """Reads what is new; False when there was nothing."""
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
        """Records that the view was current at the manager a moment ago."""
        self._read_at = self._clock()
        self._note_trouble("")

    async def _catch_up(self, revision: Revision) -> None:
        """Waits until that revision is known here: by the waiting request or by a separate one.

        The waiting request may hang on a dead connection, or at a manager that no longer leads.
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
