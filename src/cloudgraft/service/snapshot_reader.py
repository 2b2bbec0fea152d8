"""Reads everything that the autoscaler may ask of a provider, and reports what could not be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeTemplate
from cloudgraft.service import checks

T = TypeVar("T")
_AT_ONCE = 8  # groups read concurrently


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A group as last read."""

    group: NodeGroup
    target: int
    instances: Sequence[Instance]
    template: NodeTemplate | UnsupportedError
    read_at: float


@dataclass(frozen=True, slots=True)
class Extras:
    """Answers of the provider as a whole, which are rarely needed."""

    gpu_label: str = ""
    gpu_types: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one read."""

    views: Mapping[str, View]  # of each group that was read in this or an earlier read
    listed: set[str]  # the ids that the provider has, readable or not
    extras: Extras
    problems: Sequence[str] = ()


class SnapshotReader:
    """Reads one provider, with a timeout for each call, and validates every answer."""

    def __init__(self, inner: Provider, *, call_timeout: float, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._timeout = call_timeout
        self._clock = clock

    async def read_all(self, known: Mapping[str, View], extras: Extras) -> Reading:
        """Reads everything; raises only when the list of groups cannot be read.

        Other failures are in the problems, and earlier state replaces the missing answers: an error of one group, or
        of an unimportant answer, must not make the rest stale.
        """
        await self.ask(self._inner.refresh())
        groups, problems = checks.usable_groups(await self.ask(self._inner.node_groups()))
        places = asyncio.Semaphore(_AT_ONCE)
        results = await asyncio.gather(*(self._read_in_turn(group, known, places) for group in groups))
        views = {}
        for group, (view, problem) in zip(groups, results, strict=True):
            if problem:
                problems.append(f"group {group.id}: {problem}")
            if view is not None:  # a group that could never be read is left out (R13)
                views[group.id] = view
        fresh = await self._read_extras(extras, problems)
        return Reading(views=views, listed={group.id for group in groups}, extras=fresh, problems=problems)

    async def read_sizes(self, view: View) -> View:
        """The same group with its current target and instances."""
        now = self._clock()
        target, instances = await asyncio.gather(
            self.ask(self._inner.target_size(view.group.id)), self.ask(self._inner.instances(view.group.id))
        )
        return replace(
            view,
            target=checks.check_target_answer(target, view.group.id),
            instances=tuple(checks.check_instances_answer(instances, view.group.id)),
            read_at=now,
        )

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """The group's validated options."""
        return checks.check_options_answer(await self.ask(self._inner.options(group, defaults)), group)

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """The answer to one call, within the timeout."""
        async with asyncio.timeout(self._timeout):
            return await contained(call)

    async def _read_in_turn(
        self, group: NodeGroup, known: Mapping[str, View], places: asyncio.Semaphore
    ) -> tuple[View | None, str]:
        async with places:
            before = known.get(group.id)
            template, problem = await self._read_template(group.id, before)
            if template is None:
                return None, problem
            empty = View(group=group, target=0, instances=(), template=template, read_at=0.0)
            try:
                return await self.read_sizes(empty), problem
            except Exception as error:  # noqa: BLE001 - one invalid group must not affect the others
                stale = replace(before, group=group, template=template) if before else None
                return stale, _problem(error)

    async def _read_template(
        self, group: str, before: View | None
    ) -> tuple[NodeTemplate | UnsupportedError | None, str]:
        try:
            return checks.check_template_answer(await self.ask(self._inner.template(group)), group), ""
        except UnsupportedError as error:
            return error, ""
        except Exception as error:  # noqa: BLE001 - the old template is good enough: it hardly ever changes
            return before.template if before else None, _problem(error)

    async def _read_extras(self, before: Extras, problems: list[str]) -> Extras:
        try:
            label = checks.check_gpu_label_answer(await self.ask(self._inner.gpu_label()))
            types = checks.check_gpu_types_answer(await self.ask(self._inner.gpu_types()))
        except UnsupportedError:
            return Extras()
        except Exception as error:  # noqa: BLE001 - only metrics depend on it (R80)
            problems.append(f"GPU types: {_problem(error)}")
            return before
        return Extras(label, tuple(types))


def _problem(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    return error.message if isinstance(error, CloudgraftError) else f"failed with {cause(error)}"
