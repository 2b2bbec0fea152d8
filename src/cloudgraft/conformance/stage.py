"""Gives checks the server, the group under test, and the machines that the kit made in it.

The kit owns the machines that appear in its groups after it requested them, and nothing else: machines that existed
before are never deleted. Checks share machines, because machines cost money and time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import uuid4

from google.protobuf.message import Message

from cloudgraft.conformance.calls import Answer, Calls, Listed
from cloudgraft.conformance.check import Hindered, NotJudged, Violation
from cloudgraft.conformance.hooks import HookRunner
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.releases import CrashError, Release
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import NodeGroup, NodeRef, NodeTemplate
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

_FAKE_NODE_REASON: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
_FIRST_PAUSE: Final = 0.02  # seconds between two lists, at first
_LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The state of a group before the run."""

    target: int
    instances: tuple[Listed, ...]

    @property
    def ids(self) -> frozenset[str]:
        """The instances that are not the kit's."""
        return frozenset(listed.id for listed in self.instances)

    @property
    def is_empty(self) -> bool:
        """Whether the group is unused; machines being deleted do not count."""
        return self.target == 0 and all(listed.is_deleting for listed in self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state of the server at the start."""

    groups: tuple[NodeGroup, ...]
    before: Mapping[str, Before]
    """Of every group that answered."""
    group: NodeGroup | None
    """The one under test; None when no group can be used, because of what ``trouble`` says."""
    floor: NodeGroup | None = None
    """A group that may be used to go below its minimum."""
    trouble: str = ""
    first_calls: tuple[Answer[object], ...] = ()
    """Made before any Refresh."""


@dataclass(slots=True)
class _Share:
    """The kit's part of a group."""

    asked: int = 0  # machines asked for, in all
    deleted: set[str] = field(default_factory=set)  # ids whose deletion was accepted
    own: dict[str, None] = field(default_factory=dict)  # every id ever seen, in the order of appearance
    others: set[str] = field(default_factory=set)  # appeared too, but cannot be the kit's


class Stage:
    """The server, the group under test, and helpers for checks."""

    def __init__(self, config: KitConfig, calls: Calls, scene: Scene) -> None:
        self.config = config
        self.calls = calls
        self.scene = scene
        self.hooks = HookRunner(config)
        self._shares: dict[str, _Share] = {}
        self._boots = True  # until a wait for it has failed
        self._full: set[str] = set()  # groups in which a wait for room has failed
        self._renames = False  # True after a placeholder was replaced by another id

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def release(self) -> Release:
        """The release that makes the calls."""
        return self.calls.release

    @property
    def deadline(self) -> float:
        """Seconds for which the autoscaler waits for an answer."""
        return self.calls.probe.connection.config.grpc_timeout.total_seconds()

    @property
    def group(self) -> NodeGroup:
        """The group under test."""
        if self.scene.group is None:
            raise Hindered(f"there is no group to test: {self.scene.trouble}")
        return self.scene.group

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """All groups that the server lists."""
        if not self.scene.groups:
            raise Hindered("the server lists no groups")
        return self.scene.groups

    @property
    def floor(self) -> NodeGroup:
        """A group that may be used to go below its minimum."""
        if self.scene.floor is None:
            raise NotJudged("no group without machines has a minimum above 0; name one as floorGroup in kit.yaml")
        return self.scene.floor

    async def template(self, group: str) -> NodeTemplate | None:
        """The template of a group; None where there is no readable one, which other checks judge."""
        answer = (await self.calls.template(group)).value
        try:
            return None if answer is None else self.release.read_template(answer)
        except (CrashError, InvalidArgumentError):
            return None

    async def target(self, group: str = "") -> int:
        """The current target; by default of the group under test."""
        return (await self.calls.target(group or self.group.id)).expect()

    async def instances(self, group: str = "") -> tuple[Listed, ...]:
        """The current instances, those of others included."""
        group = group or self.group.id
        listed = (await self.calls.instances(group)).expect()
        self._take_note(group, listed)
        return listed

    async def live(self, group: str = "") -> tuple[Listed, ...]:
        """The instances that count: neither deleting nor gone."""
        return tuple(listed for listed in await self.instances(group) if not listed.is_deleting)

    async def own_live(self, group: str = "") -> list[str]:
        """The kit's own machines that count and did not fail."""
        group = group or self.group.id
        listed = await self.live(group)
        own = self._share(group).own
        return [each.id for each in listed if each.id in own and not each.is_failed]

    async def lost(self, ids: Iterable[str], of: int) -> list[str]:
        """Those of these machines that are no longer live, where ``of`` were live before.

        A placeholder that is now listed under its real id, and still known by the old one, is not lost.
        """
        live = {listed.id for listed in await self.live()}
        missing = [id_ for id_ in ids if id_ not in live]
        if len(live) < of:
            return missing
        answers = {id_: await self.calls.group_for_node(fake(id_)) for id_ in missing}
        return [id_ for id_, answer in answers.items() if answer.expect(f"for {id_!r}").id != self.group.id]

    # -- changes -----------------------------------------------------------------------------------------------------

    async def increase(self, delta: int, group: str = "", calls: Calls | None = None) -> Answer[Message]:
        """One IncreaseSize; machines that appear because of it are the kit's, also after an error."""
        group = group or self.group.id
        self._share(group).asked += max(delta, 0)
        return await (calls or self.calls).increase(group, delta)

    async def give_up_increase(self, delta: int, seconds: float) -> None:
        """One IncreaseSize that the client cancels after some time."""
        self._share(self.group.id).asked += delta
        request = pb.NodeGroupIncreaseSizeRequest(id=self.group.id, delta=delta)
        await self.calls.probe.give_up("NodeGroupIncreaseSize", request, seconds)

    async def delete(self, nodes: Sequence[NodeRef], group: str = "", calls: Calls | None = None) -> Answer[Message]:
        """One DeleteNodes of the kit's own machines, or of nodes that do not exist."""
        group = group or self.group.id
        if any(node.provider_id in before.ids for node in nodes for before in self.scene.before.values()):
            raise Hindered("a check wanted to delete a machine that the kit did not make")
        answer = await (calls or self.calls).delete(group, nodes)
        if answer.is_ok:
            self._share(group).deleted.update(node.provider_id for node in nodes)
        return answer

    async def grow(self, delta: int, group: str = "") -> list[str]:
        """Adds machines and waits until they are listed; returns their ids."""
        group = group or self.group.id
        await self.make_room(delta, group)
        if self._renames:
            await self._wait_for_boot(group)  # else an old machine under its new id would pass for a new one
        known = set(await self.own_live(group))
        (await self.increase(delta, group)).expect(f"of {delta}")
        new: list[str] = []

        async def are_listed() -> bool:
            new[:] = [id_ for id_ in await self.own_live(group) if id_ not in known]
            return len(new) >= delta

        if not await self.until(are_listed, self.config.patience.boot):
            raise Violation(
                f"{delta} machines were asked for and the target grew, but only {len(new)} new instances without an "
                f"error were listed within {self.config.patience.boot.total_seconds():g} s"
            )
        return new

    async def machines(self, count: int, group: str = "") -> list[str]:
        """``count`` of the kit's own live machines; creates more when there are not enough."""
        group = group or self.group.id
        there = await self.own_live(group)
        if len(there) < count:
            await self.grow(count - len(there), group)
            there = await self.own_live(group)
        if len(there) < count:
            raise Violation(f"{count} machines were made in {group!r}, but only {len(there)} are still listed")
        return there[:count]

    async def booted(self, count: int) -> list[str]:
        """Own machines that have left the state creating, if they do so in time; else in their current state."""
        await self.machines(count)
        await self._wait_for_boot(self.group.id)
        return await self.machines(count)

    async def discard(self, ids: Sequence[str], group: str) -> None:
        """Deletes own machines in any way that the server accepts."""
        if (await self.delete([fake(id_) for id_ in ids], group)).is_ok:
            return
        for id_ in ids:
            if not (await self.delete([fake(id_)], group)).is_ok:
                await self.delete([self.real(id_)], group)

    async def _wait_for_boot(self, group: str) -> None:
        asked_before = self.scene.before[group].target

        async def are_final() -> bool:
            listed = await self.instances(group)
            own = [each for each in listed if each.id in self._share(group).own and not each.is_deleting]
            asked = await self.target(group) - asked_before
            return len(own) >= asked and not any(each.is_creating and not each.has_error for each in own)

        if self._boots:
            self._boots = await self.until(are_final, self.config.patience.boot)

    async def make_room(self, count: int, group: str = "") -> None:
        """Makes sure that the group can grow by ``count``, if necessary by deleting own machines."""
        group = group or self.group.id
        largest = next(each.max_size for each in self.groups if each.id == group)

        async def has_room() -> bool:
            if largest - await self.target(group) >= count:
                return True
            if own := self.owned(group, await self.instances(group)):
                await self.discard(own, group)
            return largest - await self.target(group) >= count

        limit = timedelta(0) if group in self._full else self.config.patience.delete
        if not await self.until(has_room, limit):
            self._full.add(group)
            raise Hindered(f"the group {group!r} has no room for {count} more machines, and nothing more can be freed")

    # -- nodes -------------------------------------------------------------------------------------------------------

    def node_name(self, instance: str) -> str:
        """The name of an instance's node by the config; else the last part of the id."""
        found = re.search(self.config.node_name or r"([^/]+)$", instance)
        if found is None:
            return instance
        return found[1] if found.re.groups else found[0]

    def real(self, instance: str) -> NodeRef:
        """The node that an instance becomes (R16 a)."""
        name = self.node_name(instance)
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        annotations = {"node.alpha.kubernetes.io/ttl": "0"}
        return NodeRef(name=name, provider_id=instance, labels=labels, annotations=annotations)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Awaitable[bool]], limit: timedelta) -> bool:
        """Polls a condition, ever more slowly; False when it did not hold in time."""
        end = time.monotonic() + limit.total_seconds()
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, factor=1.5)
        while not await condition():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(backoff.next())
        return True

    # -- ownership ---------------------------------------------------------------------------------------------------

    @property
    def touched(self) -> tuple[str, ...]:
        """The groups in which the kit asked for machines."""
        return tuple(group for group, share in self._shares.items() if share.asked)

    def owned(self, group: str, listed: Iterable[Listed]) -> list[str]:
        """Those that the kit made and that are not being deleted, failed ones included."""
        self._take_note(group, listed := tuple(listed))
        own = self._share(group).own
        return [each.id for each in listed if each.id in own and not each.is_deleting]

    def _share(self, group: str) -> _Share:
        return self._shares.setdefault(group, _Share())

    def _take_note(self, group: str, listed: Iterable[Listed]) -> None:
        """Remembers new ids as the kit's; in a group that others use, no more than it requested."""
        share, before = self._share(group), self.scene.before.get(group)
        known = {each.id: not each.is_deleting for each in listed}
        live = [id_ for id_, counts in known.items() if counts]
        self._renames |= any(id_ not in known and id_ not in share.deleted for id_ in share.own)
        is_shared = before is None or not before.is_empty
        # An id that is neither listed nor deleted was a placeholder; its machine is listed under another id.
        room = share.asked - sum(id_ in share.deleted or id_ in live for id_ in share.own)
        for id_ in live:
            if id_ in share.own or id_ in share.others or (before and id_ in before.ids):
                continue
            if share.asked and (room > 0 or not is_shared):
                share.own[id_] = None
                room -= 1
            else:
                share.others.add(id_)


def fake(instance: str, reason: str = "unregistered") -> NodeRef:
    """The stand-in for an instance without a node (R16 b)."""
    return NodeRef(name=instance, provider_id=instance, annotations={_FAKE_NODE_REASON: reason})


def foreign() -> NodeRef:
    """A node that no server can know."""
    name = f"no-such-node-{uuid4().hex[:12]}"
    return NodeRef(name=name, provider_id=f"cloudgraft-conformance://nowhere/{name}")
