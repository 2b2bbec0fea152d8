"""Implements the provider ``ec2-asg``: Auto Scaling groups as node groups.

All reads are answered from memory. :meth:`Ec2AsgProvider.refresh` reads all groups from AWS in one paged pass. When a
caller gives up, the pass continues, and the next caller joins it. Behind cloudgraft's snapshot, which every provider
gets by default, no answer is late while AWS is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from cloudgraft.providers.ec2_asg.changes import Changes
from cloudgraft.providers.ec2_asg.cloud import AutoScaling, Survey
from cloudgraft.providers.ec2_asg.options import Ec2AsgOptions, GroupOverrides
from cloudgraft.providers.ec2_asg.state import Asg, Group, ReadTime, group_of_placeholder
from cloudgraft.providers.ec2_asg.templates import node_price, node_template, options_of, pod_price
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod

log: Final = logging.getLogger("cloudgraft.drivers")

_REMEMBER_GONE: Final = 30 * 60.0  # seconds; a Node object may outlive its machine that long (R24)
_ASKED_ABOUT: Final = 8  # groups whose activities are read in one pass
_BEFORE_US: Final = timedelta(minutes=10)  # how old a failure may be for instances that were missing at our start
_INSTANCE: Final = re.compile(r"aws:///[^/]+/(i-[0-9a-f]+)")
_RATE_LIMIT_PAUSE: Final = 10.0  # seconds, at least, without calls after a rate limit of AWS


class Ec2AsgProvider(Provider):
    """The Auto Scaling groups that the options select by name or tags; no other is ever touched."""

    Options = Ec2AsgOptions

    def __init__(self, options: Ec2AsgOptions) -> None:
        """Makes no call and reads no file yet."""
        self._options = options
        self._cloud = AutoScaling(options)
        self._pool = BlockingPool("ec2-asg")
        self._changes = Changes(self._cloud, self._pool, self._saw)
        self._groups: dict[str, Group] | None = None  # None: not read yet
        self._owners: dict[str, str] = {}  # provider id -> group
        self._gone: dict[str, tuple[str, float]] = {}  # provider id -> its group, and when it went
        self._shapes: dict[str, Shape] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pass: asyncio.Task[None] | None = None
        self._passed_at = float("-inf")
        self._paused: tuple[float, CloudgraftError] | None = None  # until when AWS is not called, and why
        self._asked: dict[str, float] = {}  # group -> when its activities were read
        self._reported: set[str] = set()

    # -- reads, from memory --------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """Returns all groups by name. One that cannot be used raises when it is asked for its size."""
        return [group.node_group for group in self._known().values()]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Finds the group by provider id. AWS does not report node names with a group."""
        group = self._known().get(self._owner(node))
        return group.node_group if group is not None and group.fits else None

    async def target_size(self, group: str) -> int:
        """Returns the desired capacity without instances that are leaving."""
        return self._usable(group).target

    async def instances(self, group: str) -> Sequence[Instance]:
        """Returns the instances, and a placeholder for each that AWS has not created yet."""
        return self._usable(group).instances()

    async def template(self, group: str) -> NodeTemplate:
        """Builds the template from the launch template and the tags.

        A missing template is an error and not "unsupported": a group without one would keep older autoscalers from
        scaling any other (R66), so the group is left out until it has one.
        """
        found = self._usable(group).template
        if isinstance(found, NodeTemplate):
            return found
        why = found.message if found else "it has not been looked at"
        raise PreconditionError(f"what a node of the Auto Scaling group {group} will be is not known: {why}")

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Returns the options from the group's tags."""
        del defaults
        return self._usable(group).options

    async def gpu_label(self) -> str:
        """Returns the label of the options."""
        return self._options.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """Returns none: they are not known, and only metrics use them."""
        return ()

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Returns the price of the instance type in its labels (R81)."""
        return node_price(node, self._options.prices, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Returns the price of its share of the cheapest machine for it."""
        return pod_price(pod, self._options.prices, self._shapes.values(), start, end)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """Raises the current desired capacity in AWS, even if another client has changed it."""
        async with self._locks[group]:
            await self._changes.increase(self._usable(group), delta)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Terminates exactly these instances; each lowers the desired capacity."""
        async with self._locks[group]:
            found = self._usable(group)
            ids = [node.provider_id or node.name for node in nodes]
            foreign = [one for node, one in zip(nodes, ids, strict=True) if self._owner(node) != group]
            if foreign and not await self._have_gone(group, foreign):
                raise InvalidArgumentError(f"{foreign[0]!r} is no instance of the Auto Scaling group {group}")
            placeholders = [one for one in ids if group_of_placeholder(one)]
            instances = [one.rpartition("/")[2] for one in ids if one not in placeholders]
            await self._changes.delete(found, instances, placeholders)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Cancels missing instances. Errors are only logged: raised, they would stop all groups (R62)."""
        async with self._locks[group]:
            try:
                await self._changes.give_back(self._usable(group), -delta)
            except CloudgraftError as error:
                log.warning(
                    "the desired capacity was not lowered by missing instances; the autoscaler will ask again",
                    extra={"group": group, "error": error.message},
                )

    # -- reads from AWS ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Reads all groups, unless that was done a moment ago and nothing is changing."""
        if self._pass is None:
            if not self._is_due():
                return
            if self._paused is not None and time.monotonic() < self._paused[0]:
                raise self._paused[1]
            self._pass = asyncio.create_task(self._read_all(), name="ec2-asg")
            self._pass.add_done_callback(self._ended)
        await asyncio.shield(self._pass)

    async def start(self) -> None:
        """Looks for the credentials. Only the first refresh finds out whether AWS is reachable."""
        await self._pool.run(self._cloud.open)

    async def close(self) -> None:
        """Closes the connections; a request in flight ends by itself."""
        if self._pass is not None:
            self._pass.cancel()
        self._pool.close()
        closing = BlockingPool("ec2-asg-close", threads=1)  # all threads of the other pool may hang
        try:
            await closing.run(self._cloud.close)
        finally:
            closing.close()

    def _is_due(self) -> bool:
        calm = time.monotonic() - self._passed_at < self._options.interval.total_seconds()
        return self._groups is None or not calm or any(group.is_busy for group in self._groups.values())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._pass = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, RateLimitedError):
            self._paused = (time.monotonic() + max(_RATE_LIMIT_PAUSE, error.retry_after or 0.0), error)

    async def _read_all(self) -> None:
        before = {name: group.revision for name, group in (self._groups or {}).items()}
        asked = self._asked_about()
        at = time.monotonic()
        survey = await self._pool.run(self._cloud.survey, asked)
        self._asked = {name: (at if name in asked else when) for name, when in self._asked.items()}
        self._take(survey, ReadTime(at=at, aws=survey.at), before)
        self._passed_at, self._paused = at, None

    def _asked_about(self) -> list[str]:
        """Returns groups that wait for instances, those first whose activities were read longest ago."""
        waiting = [name for name, group in (self._groups or {}).items() if group.waiting.list]
        self._asked = {name: self._asked.get(name, float("-inf")) for name in waiting}
        return sorted(waiting, key=self._asked.__getitem__)[:_ASKED_ABOUT]

    def _take(self, survey: Survey, read_time: ReadTime, before: dict[str, int]) -> None:
        known, groups = self._groups or {}, {}
        for asg in survey.groups:
            group = known.get(asg.name)
            if group is None:
                since = survey.at - _BEFORE_US
                group = Group(asg, self._sizes(asg), read_time, region=self._options.region, since=since)
            elif before.get(asg.name) == group.revision and not self._locks[asg.name].locked():
                self._saw(group, asg, read_time)  # otherwise a change ran meanwhile or runs now, which reads for itself
            groups[asg.name] = group
            group.options = options_of(asg)
            group.failure = survey.failures.get(asg.name, group.failure)
            found = survey.shapes[asg.name]
            if isinstance(found, Shape):
                self._shapes[found.name] = found
                group.template = node_template(group.asg, found, self._options, self._overrides(asg.name))
            else:
                group.template = found
        for name in known.keys() - groups.keys():
            self._went(name, [member.provider_id for member in known[name].asg.members], read_time.at)
        self._groups = groups
        self._owners = {m.provider_id: name for name, group in groups.items() for m in group.asg.members}
        self._gone = {key: one for key, one in self._gone.items() if one[1] > read_time.at - _REMEMBER_GONE}
        self._report_missing(groups)

    def _saw(self, group: Group, asg: Asg, read_time: ReadTime) -> None:
        gone = group.observe(asg, self._sizes(asg), read_time)
        self._went(asg.name, [member.provider_id for member in gone], read_time.at)
        self._owners |= {member.provider_id: asg.name for member in asg.members}

    def _went(self, group: str, provider_ids: Sequence[str], at: float) -> None:
        for one in provider_ids:
            self._owners.pop(one, None)
            self._gone[one] = (group, at)

    def _report_missing(self, groups: Collection[str]) -> None:
        missing = {name for name in (*self._options.groups, *self._options.overrides) if name not in groups}
        for name in sorted(missing - self._reported):
            log.warning("there is no such Auto Scaling group, or the options do not select it", extra={"group": name})
        self._reported = missing

    def _known(self) -> dict[str, Group]:
        if self._groups is None:
            raise UnavailableError("the Auto Scaling groups have not been read yet")
        return self._groups

    def _usable(self, name: str) -> Group:
        group = self._known().get(name)
        if group is None:
            raise NotFoundError(f"there is no Auto Scaling group {name!r}, or the options do not select it")
        group.check()
        return group

    def _owner(self, node: NodeRef) -> str:
        """Returns the group of a current, expected or recently deleted node; empty when it is not ours."""
        one = node.provider_id or node.name
        if found := self._owners.get(one) or group_of_placeholder(one):
            return found
        return self._gone[one][0] if one in self._gone else ""

    async def _have_gone(self, group: str, foreign: Sequence[str]) -> bool:
        """Returns whether these are terminated instances of this group, as far as AWS knows (R56, after a restart)."""
        ids = [found[1] for found in map(_INSTANCE.fullmatch, foreign) if found]
        if len(ids) < len(foreign) or any(one in self._owners or one in self._gone for one in foreign):
            return False
        return await self._pool.run(self._cloud.have_ended, group, ids)

    def _overrides(self, name: str) -> GroupOverrides:
        return self._options.overrides.get(name) or GroupOverrides()

    def _sizes(self, asg: Asg) -> tuple[int, int]:
        own = self._overrides(asg.name)
        high = asg.max_size if own.max_size is None else min(own.max_size, asg.max_size)
        return max(own.min_size or 0, asg.min_size), high
