"""A slow or remote provider, answered for from memory.

A background task reads everything that the autoscaler may ask every few seconds; the calls are answered from that
(law 1), also while the provider is away (law 6). Changes go through to the provider, and what they changed is read
back before the answer, so that a caller sees its own writes (R27).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError, UnsupportedError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import (
    AutoscalingOptions,
    Instance,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Pod,
)
from cloudgraft.service import checks
from cloudgraft.service.memo import Memo

__all__ = ["SnapshotProvider", "SnapshotSettings"]

log = logging.getLogger("cloudgraft.snapshot")

_AT_ONCE = 8  # groups read at the same time
_NODES_REMEMBERED = 50_000
_OPTIONS_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """How fresh is fresh. All in seconds."""

    refresh_every: float = 5.0
    max_staleness: float = 300.0  # older than this, refresh() fails, and the autoscaler pauses
    call_timeout: float = 5.0  # for each read of the provider
    read_back_timeout: float = 1.0  # for looking at a group after a change


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A group as it was last seen."""

    group: NodeGroup
    target: int
    instances: Sequence[Instance]
    template: NodeTemplate | UnsupportedError


@dataclass(frozen=True, slots=True)
class _Extras:
    gpu_label: str = ""
    gpu_types: Collection[str] = ()


class SnapshotProvider(Provider):
    """Stands in front of another provider and answers from what it last said."""

    def __init__(
        self,
        inner: Provider,
        *,
        name: str,
        settings: SnapshotSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._inner = inner
        self._settings = settings or SnapshotSettings()
        self._clock = clock
        self._views: dict[str, _View] = {}
        self._owners: dict[str, str] = {}  # instance id -> group id
        self._extras = _Extras()
        self._revisions: dict[str, int] = {}  # counts the changes of a group: a read that began before one is void
        self._read_at: float | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._trouble = "has not answered yet"
        fresh_for, stale_for = self._settings.refresh_every, self._settings.max_staleness
        self._nodes: Memo[tuple[str, str], str | None] = Memo(
            fresh_for=fresh_for, stale_for=stale_for, size=_NODES_REMEMBERED, clock=clock
        )
        self._options: Memo[tuple[str, AutoscalingOptions], AutoscalingOptions | None] = Memo(
            fresh_for=fresh_for, stale_for=stale_for, size=_OPTIONS_REMEMBERED, clock=clock
        )

    # -- what an operator may ask ------------------------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since the state that is served was read; infinite before the first time."""
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    @property
    def trouble(self) -> str:
        """Why the latest read failed; empty when it did not."""
        return self._trouble

    # -- reads, from memory ------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """The groups as last read."""
        self._must_have_been_read()
        return [view.group for view in self._views.values()]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """From the listed instances; a node that is none of them is asked about once, then remembered."""
        self._must_have_been_read()
        group = self._owners.get(node.provider_id) if node.provider_id else None
        if group is None:
            group = await self._nodes.get((node.name, node.provider_id), lambda: self._ask_node(node))
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
        """The answer to the same defaults, remembered."""
        self._view(group)
        return await self._options.get((group, defaults), lambda: self._ask_options(group, defaults))

    async def gpu_label(self) -> str:
        """The label as last read."""
        self._must_have_been_read()
        return self._extras.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """The types as last read."""
        self._must_have_been_read()
        return self._extras.gpu_types

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Asked each time: the autoscaler gives every node it wants priced a new name."""
        return await self._inner.node_price(node, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Asked each time."""
        return await self._inner.pod_price(pod, start, end)

    # -- changes, passed on ------------------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """Passed on; the new target shows at once."""
        view = self._view(group)
        expected = replace(view, target=view.target + delta)
        await self._change(group, self._inner.increase_size(group, delta), expected)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Passed on; the machines show as being deleted at once."""
        view = self._view(group)
        await self._change(group, self._inner.delete_nodes(group, nodes), _without(view, nodes))

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Passed on; the target shows at once."""
        view = self._view(group)
        alive = sum(instance.state is not InstanceState.DELETING for instance in view.instances)
        expected = replace(view, target=max(view.target + delta, min(alive, view.target)))
        await self._change(group, self._inner.decrease_target_size(group, delta), expected)

    async def refresh(self) -> None:
        """Starts a new read and does not wait for it; fails only when the state is too old to act on (R2)."""
        self._wake.set()
        self._must_have_been_read()
        if self.age > self._settings.max_staleness:
            raise UnavailableError(f"provider {self.name} has not been read for {self.age:.0f} s: {self._trouble}")

    async def cleanup(self) -> None:
        """Passed on."""
        await self._inner.cleanup()

    # -- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the provider and tries to read it once. One that is away is tried again in the background."""
        await self._inner.start()
        await self._read_all()
        self._loop = asyncio.create_task(self._keep_reading(), name=f"snapshot {self.name}")

    async def close(self) -> None:
        """Stops reading and closes the provider."""
        self._nodes.close()
        self._options.close()
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        await self._inner.close()

    # -- the reader --------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        while True:
            # Not wait_for(): in Python 3.11 it may swallow a cancellation, and close() would wait for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.refresh_every):
                    await self._wake.wait()
            self._wake.clear()
            await self._read_all()

    async def _read_all(self) -> None:
        """Reads everything once; what cannot be read stays as it was."""
        began = self._clock()
        try:
            await self._ask(self._inner.refresh())
            groups = checks.check_groups_answer(await self._ask(self._inner.node_groups()))
            self._extras = await self._read_extras()
        except Exception as error:  # noqa: BLE001 - whatever it is, the old state is still the best there is
            self._note_trouble(error)
            return
        revisions = dict(self._revisions)
        places = asyncio.Semaphore(_AT_ONCE)
        views = await asyncio.gather(*(self._read_in_turn(group, places) for group in groups))
        # A group that was changed while we read may have been seen from before the change: keep what the change left.
        current = {
            group.id: view if revisions.get(group.id) == self._revisions.get(group.id) else self._views.get(group.id)
            for group, view in zip(groups, views, strict=True)
        }
        self._publish({group: view for group, view in current.items() if view is not None})
        self._read_at = began
        self._note_trouble(None)

    async def _read_extras(self) -> _Extras:
        try:
            label = await self._ask(self._inner.gpu_label())
            return _Extras(label, tuple(await self._ask(self._inner.gpu_types())))
        except UnsupportedError:
            return _Extras()

    async def _read_in_turn(self, group: NodeGroup, places: asyncio.Semaphore) -> _View | None:
        async with places:
            try:
                return await self._read_group(group)
            except Exception as error:  # noqa: BLE001 - one bad group must not take the others down
                log.warning(
                    "a group could not be read", extra={"provider": self.name, "group": group.id, "error": str(error)}
                )
                return self._views.get(group.id)  # None for one that was never read: it is left out (R13)

    async def _read_group(self, group: NodeGroup) -> _View:
        target = checks.check_target_answer(await self._ask(self._inner.target_size(group.id)), group.id)
        instances = checks.check_instances_answer(await self._ask(self._inner.instances(group.id)), group.id)
        template: NodeTemplate | UnsupportedError
        try:
            template = checks.check_template_answer(await self._ask(self._inner.template(group.id)), group.id)
        except UnsupportedError as error:
            template = error
        return _View(group=group, target=target, instances=tuple(instances), template=template)

    def _publish(self, views: dict[str, _View]) -> None:
        self._views = views
        self._owners = {instance.id: view.group.id for view in views.values() for instance in view.instances}

    async def _change(self, group: str, change: Coroutine[Any, Any, None], expected: _View) -> None:
        self._revisions[group] = self._revisions.get(group, 0) + 1
        try:
            await change
        except BaseException:
            self._wake.set()  # whether it was done is not known: look soon
            raise
        self._revisions[group] += 1
        self._publish({**self._views, group: expected})
        try:
            async with asyncio.timeout(self._settings.read_back_timeout):
                view = await self._read_group(expected.group)
        except Exception as error:  # noqa: BLE001 - the change is made; only the look at it failed
            log.debug("no read after a change", extra={"provider": self.name, "group": group, "error": str(error)})
            self._wake.set()
        else:
            self._publish({**self._views, group: view})

    # -- helpers -----------------------------------------------------------------------------------------------------

    async def _ask_node(self, node: NodeRef) -> str | None:
        group = await self._ask(self._inner.node_group_for_node(node))
        return group.id if group is not None else None

    async def _ask_options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        return checks.check_options_answer(await self._ask(self._inner.options(group, defaults)), group)

    async def _ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        async with asyncio.timeout(self._settings.call_timeout):
            return await call

    def _view(self, group: str) -> _View:
        self._must_have_been_read()
        try:
            return self._views[group]
        except KeyError:
            raise NotFoundError(f"there is no node group {checks.shown(group)}") from None

    def _must_have_been_read(self) -> None:
        if self._read_at is None:
            raise UnavailableError(f"provider {self.name} {self._trouble}")

    def _note_trouble(self, error: Exception | None) -> None:
        trouble = "" if error is None else _reason(error)
        if trouble != self._trouble:
            if trouble:
                log.warning("a provider cannot be read", extra={"provider": self.name, "error": trouble})
            else:
                log.info("a provider is read", extra={"provider": self.name, "groups": len(self._views)})
        self._trouble = trouble


def _without(view: _View, nodes: Sequence[NodeRef]) -> _View:
    """What a view should look like once the deletion of these nodes was accepted."""
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
    return f"failed with {type(error).__name__}"
