"""Answers for a slow or remote provider from memory.

A background task reads everything that the autoscaler may ask every few seconds. Calls are answered from that copy
(law 1), also while the provider is unavailable (law 6). Changes are passed to the provider, and the next answers show
them at once (R27).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, NotFoundError, UnavailableError, UnsupportedError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceState, NodeGroup, NodeRef, NodeTemplate, Pod
from cloudgraft.service.snapshot_reader import Extras, SnapshotReader, View

# -- cached answers ----------------------------------------------------------------------------------------------------


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Answer(Generic[V]):
    value: V | UnsupportedError  # "not supported" is an answer too
    asked_at: float


class Memo(Generic[K, V]):
    """Caches the answers to questions of one kind.

    - First request: the caller waits; others with the same key wait for the same answer.
    - Older than ``fresh_for``: the caller gets the old answer, and a refresh runs in the background. An old answer is
      better than an error; the maximum age is decided elsewhere.

    Keeps at most ``size`` answers; drops the least recently used first.
    """

    def __init__(self, *, fresh_for: float, size: int, clock: Callable[[], float]) -> None:
        self._fresh_for = fresh_for
        self._size = size
        self._clock = clock
        self._answers: OrderedDict[K, _Answer[V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[_Answer[V]]] = {}

    def knows(self, key: K) -> bool:
        """Whether there is an answer."""
        return key in self._answers

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for this key; ``ask`` gets a new one."""
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
            if self._clock() - answer.asked_at > self._fresh_for:
                _ = self._begin(key, ask)
            return _unwrap(answer)
        # Shielded: one caller's deadline must not cancel the request of the others.
        return _unwrap(await asyncio.shield(self._begin(key, ask)))

    def close(self) -> None:
        """Cancels requests under way."""
        for task in self._asking.values():
            task.cancel()

    def _begin(self, key: K, ask: Callable[[], Awaitable[V]]) -> asyncio.Task[_Answer[V]]:
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch(key, ask))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return task

    def _end(self, key: K, task: asyncio.Task[_Answer[V]]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not complain when no caller waits

    async def _fetch(self, key: K, ask: Callable[[], Awaitable[V]]) -> _Answer[V]:
        asked_at = self._clock()
        try:
            answer: _Answer[V] = _Answer(await contained(ask()), asked_at)
        except UnsupportedError as error:
            answer = _Answer(error, asked_at)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)
        return answer


def _unwrap(answer: _Answer[V]) -> V:
    if isinstance(answer.value, CloudgraftError):
        raise UnsupportedError(answer.value.message)
    return answer.value


log = logging.getLogger("cloudgraft.snapshot")

T = TypeVar("T")
_NODES_REMEMBERED = 50_000
_OPTIONS_REMEMBERED = 10_000
_GONE_REMEMBERED = 30 * 60.0  # seconds; a Node object may outlive its machine that long (R24)
_TEMPLATE_NODE = "template-node-for-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """The limits of age and time. All in seconds."""

    refresh_every: float = 5.0
    max_staleness: float = 300.0  # older than this, refresh() fails, and a single group is left out
    call_timeout: float = 5.0  # for each read of the provider
    read_back_timeout: float = 1.0  # for reading a group after a change
    first_answer_timeout: float = 0.5  # for answers that cannot be read in advance: an unknown node, the first options


class SnapshotProvider(Provider):
    """Wraps another provider and answers from its last read state."""

    def __init__(
        self,
        inner: Provider,
        *,
        name: str,
        settings: SnapshotSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name`` is for logs and messages; ``clock`` returns seconds, for ages."""
        self.name = name
        self._inner = inner
        self._settings = settings or SnapshotSettings()
        self._clock = clock
        self._reader = SnapshotReader(inner, call_timeout=self._settings.call_timeout, clock=clock)
        self._views: dict[str, View] = {}
        self._vanished: set[str] = set()  # groups the provider no longer has: the next refresh removes them (R4)
        self._owners: dict[str, str] = {}  # instance id -> group id
        self._gone: dict[str, tuple[str, float]] = {}  # instance id -> its group, and when it disappeared
        self._extras = Extras()
        self._revisions: dict[str, int] = {}  # number of changes of a group: a read that began before a change is void
        self._read_at: float | None = None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._trouble = "has not answered yet"
        self._is_away = True  # it does not answer at all, as far as is known
        # Unlisted nodes mostly belong to other providers: their answers need not be as fresh as the rest.
        self._nodes: Memo[tuple[str, str], str | None] = Memo(
            fresh_for=12 * self._settings.refresh_every, size=_NODES_REMEMBERED, clock=clock
        )
        self._options: Memo[tuple[str, AutoscalingOptions], AutoscalingOptions | None] = Memo(
            fresh_for=self._settings.refresh_every, size=_OPTIONS_REMEMBERED, clock=clock
        )

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since the served state was read; infinite before the first read."""
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    @property
    def trouble(self) -> str:
        """Why the latest read failed, completely or for a group; empty when it succeeded."""
        return self._trouble

    # -- reads, from memory ------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """The groups as last read."""
        self._must_have_been_read()
        return [view.group for view in self._views.values()]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """By the listed instances and those that disappeared recently (R24).

        For any other node the provider is asked once, and the answer is cached. The caller waits only briefly: an
        unlisted node is not expected to be this provider's (R30).
        """
        self._must_have_been_read()
        group = self._owners.get(node.provider_id) if node.provider_id else None
        if group is None and node.provider_id in self._gone:
            group = self._gone[node.provider_id][0]
        if group is None and not node.name.startswith(_TEMPLATE_NODE):  # those are simulated, with a new name each time
            key = (node.name, node.provider_id)
            group = await self._soon(self._nodes, key, lambda: self._ask_node(node))
        view = self._views.get(group) if group is not None else None
        return view.group if view is not None else None

    async def target_size(self, group: str) -> int:
        """The target as last read or changed."""
        return self._view(group).target

    async def instances(self, group: str) -> Sequence[Instance]:
        """The instances as last read or changed."""
        return self._view(group).instances

    async def template(self, group: str) -> NodeTemplate:
        """The template as last read."""
        template = self._view(group).template
        if isinstance(template, UnsupportedError):
            raise UnsupportedError(template.message)
        return template

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """The cached answer for these defaults; None, which means the defaults, while there is none (R73)."""
        self._view(group)
        return await self._soon(self._options, (group, defaults), lambda: self._reader.options(group, defaults))

    async def gpu_label(self) -> str:
        """The label as last read."""
        self._must_have_been_read()
        return self._extras.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """The types as last read."""
        self._must_have_been_read()
        return self._extras.gpu_types

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Not cached: the autoscaler gives every node that it wants a price for a new name."""
        return await self._inner.node_price(node, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Not cached."""
        return await self._inner.pod_price(pod, start, end)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """Passes the change on; the new target is visible at once."""
        view = self._view(group)
        await self._change(group, self._inner.increase_size(group, delta), replace(view, target=view.target + delta))
        await self._look_at(group)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Passes the change on; the machines are shown as being deleted at once.

        Up to ten of these come at a time (R49) and run one after the other. Their effect is known without a read,
        unless a node has only a name or an earlier id: then only the provider knows which machine it is.
        """
        view = self._view(group)
        await self._change(group, self._inner.delete_nodes(group, nodes), _without(view, nodes))
        if not {node.provider_id or node.name for node in nodes} <= {instance.id for instance in view.instances}:
            await self._look_at(group)
        self._wake.set()

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Passes the change on; the target is visible at once."""
        view = self._view(group)
        alive = sum(instance.state is not InstanceState.DELETING for instance in view.instances)
        expected = replace(view, target=max(view.target + delta, min(alive, view.target)))
        await self._change(group, self._inner.decrease_target_size(group, delta), expected)
        await self._look_at(group)

    async def refresh(self) -> None:
        """Starts a new read and does not wait for it; fails only when the state is too old to act on (R2).

        Only a refresh removes groups that the provider no longer has, or that could not be read for too long: a listed
        group must answer for a whole loop (R4, R13).
        """
        self._wake.set()
        self._must_have_been_read()
        self._drop_groups()
        if self.age > self._settings.max_staleness:
            raise UnavailableError(f"provider {self.name} has not been read for {self.age:.0f} s: {self._trouble}")

    async def cleanup(self) -> None:
        """Passes the call on."""
        await self._inner.cleanup()

    # -- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the provider and tries to read it once. If it is unavailable, the background task retries."""
        await self._inner.start()
        await self._read_all()
        self._spawn(self._keep_reading())

    async def close(self) -> None:
        """Stops reading and closes the provider."""
        self._nodes.close()
        self._options.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._inner.close()

    # -- background reads --------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        while True:
            # Not wait_for(): in Python 3.11 it may swallow a cancellation, and close() would wait for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.refresh_every):
                    await self._wake.wait()
            self._wake.clear()
            await self._read_all()

    async def _read_all(self) -> None:
        """Reads everything once; state that cannot be read stays unchanged."""
        began, revisions, known = self._clock(), dict(self._revisions), dict(self._views)
        try:
            reading = await self._reader.read_all(known, self._extras)
        except Exception as error:  # noqa: BLE001 - after any error the old state is still the best
            self._is_away = True
            self._note_trouble(_reason(error))
            return
        # A group that changed during the read may have been read before the change: keep the state after the change.
        views = {
            group: view if revisions.get(group) == self._revisions.get(group) else self._views.get(group, view)
            for group, view in reading.views.items()
        }
        self._vanished = set(self._views) - reading.listed
        kept = {group: view for group, view in self._views.items() if group not in views}
        self._publish({**views, **kept})
        self._extras = reading.extras
        self._read_at = began
        self._is_away = False
        self._note_trouble("; ".join(reading.problems))

    async def _change(self, group: str, change: Coroutine[Any, Any, None], expected: View) -> None:
        """Makes a change; afterwards answers show its expected effect."""
        self._revisions[group] = self._revisions.get(group, 0) + 1
        try:
            await change
        except BaseException:
            self._wake.set()  # the outcome is unknown: read soon
            raise
        self._revisions[group] += 1
        self._publish({**self._views, group: expected})

    async def _look_at(self, group: str) -> None:
        """Reads one group after a change, within the time that a caller may wait."""
        revision, view = self._revisions.get(group), self._views[group]
        try:
            async with asyncio.timeout(self._settings.read_back_timeout):
                fresh = await self._reader.read_sizes(view)
        except Exception as error:  # noqa: BLE001 - the change is made; only the read failed
            log.debug("no read after a change", extra={"provider": self.name, "group": group, "error": str(error)})
            self._wake.set()
        else:
            if revision == self._revisions.get(group):
                self._publish({**self._views, group: fresh})

    def _publish(self, views: dict[str, View]) -> None:
        owners = {instance.id: group for group, view in views.items() for instance in view.instances}
        now = self._clock()
        for instance, group in self._owners.items():
            if instance not in owners:
                self._gone[instance] = (group, now)
        if self._gone:
            limit = now - _GONE_REMEMBERED
            self._gone = {i: seen for i, seen in self._gone.items() if seen[1] > limit and i not in owners}
        self._views, self._owners = views, owners

    def _drop_groups(self) -> None:
        too_old = {
            group
            for group, view in self._views.items()
            if self._read_at is not None and self._read_at - view.read_at > self._settings.max_staleness
        }
        for group in too_old - self._vanished:
            log.error("a group is left out, it could not be read for too long", extra=self._about(group))
        leaving = too_old | self._vanished
        if leaving:
            self._publish({group: view for group, view in self._views.items() if group not in leaving})
            self._vanished = set()

    # -- helpers -----------------------------------------------------------------------------------------------------

    async def _soon(self, memo: Memo[Any, T | None], key: Any, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        """The cached answer; else an answer within a short time; else None."""
        if not memo.knows(key) and self._is_away:
            return None  # a request would only time out, once per node
        try:
            async with asyncio.timeout(self._settings.first_answer_timeout):
                return await memo.get(key, ask)
        except UnsupportedError:
            raise
        except (TimeoutError, UnavailableError, DeadlineError):
            self._is_away = True
            self._wake.set()
        except Exception as error:  # noqa: BLE001 - "not known" is a safe answer, an error is not (R21)
            log.debug("a question was answered with an error", extra={"provider": self.name, "error": str(error)})
        return None

    async def _ask_node(self, node: NodeRef) -> str | None:
        group = await self._reader.ask(self._inner.node_group_for_node(node))
        return group.id if group is not None else None

    def _view(self, group: str) -> View:
        self._must_have_been_read()
        try:
            return self._views[group]
        except KeyError:
            raise NotFoundError(f"there is no node group {group!r} in provider {self.name}") from None

    def _must_have_been_read(self) -> None:
        if self._read_at is None:
            raise UnavailableError(f"provider {self.name} {self._trouble}")

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            if trouble:
                what = "a provider cannot be read" if self._is_away else "a part of a provider cannot be read"
                log.warning(what, extra={"provider": self.name, "error": trouble})
            else:
                log.info("a provider is read", extra={"provider": self.name, "groups": len(self._views)})
        self._trouble = trouble

    def _about(self, group: str) -> dict[str, object]:
        return {"provider": self.name, "group": group}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"snapshot {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _without(view: View, nodes: Sequence[NodeRef]) -> View:
    """The expected view after the deletion of these nodes was accepted."""
    ids = {node.provider_id or node.name for node in nodes}
    leaving = [i for i in view.instances if i.id in ids and i.state is not InstanceState.DELETING]
    instances = [
        replace(instance, state=InstanceState.DELETING, error=None) if instance.id in ids else instance
        for instance in view.instances
    ]
    return replace(view, target=max(0, view.target - len(leaving)), instances=tuple(instances))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    if isinstance(error, CloudgraftError):
        return f"answers {error.slug}: {error.message}"
    return f"failed with {cause(error)}"
