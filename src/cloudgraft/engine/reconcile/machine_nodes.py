"""Keeps the nodes of one cloud's machines: scans them, and publishes each machine's claim to its node."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from cloudgraft.engine.clock import wall_time
from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import has_failed, is_lost, was_found, was_released
from cloudgraft.engine.nodes.scale_up_times import ScaleUpTimes
from cloudgraft.engine.nodes.template_learner import TemplateLearner
from cloudgraft.engine.nodes.tracking import Cluster, NodeCount
from cloudgraft.engine.reconcile.observer import SLICE, Observer
from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.driver import Machine, ProviderIdBy
from cloudgraft.store.records import MachineRecord, State

_EVERY: Final = 1.0  # seconds between two publications of all claims, and between two scans, at least
_GOING: Final = frozenset({State.FAILED, State.DELETING})


def claim_of(
    record: MachineRecord, observation: Observation | None, fleet: Fleet, *, is_ours_to_set: bool, lead: float = 0.0
) -> Claim | None:
    """The claim to a machine's node; None for a machine that never existed, or that was released.

    Clouds reuse ids and addresses: the claim of a gone machine has only those that no other machine has now. While a
    cloud has two machines for one intent, neither providerID may be written on a node that may be the other's.
    ``lead``: seconds by which the engine's clock is ahead of the wall clock, which nodes use.
    """
    is_gone = record.state is State.GONE
    if was_released(record) or (is_gone and record.ordered_at is None):
        return None
    group = fleet.groups.get(record.group)
    seen = observation.listed.machine if observation is not None and not is_gone else None
    has_id = fleet.by_machine_id(record.cloud, record.machine_id) if record.machine_id else None
    stage = Stage.GONE if is_gone else Stage.GOING if record.state in _GOING else Stage.WANTED
    return Claim(
        name=record.name,
        cloud=record.cloud,
        group=record.group,
        stage=stage,
        provider_id=record.provider_id if fleet.owner(record.provider_id) in ("", record.name) else "",
        machine_id=record.machine_id if has_id is None or has_id.name == record.name else "",
        addresses=tuple(seen.addresses) if seen is not None else (),
        labels=group.spec.labels if group is not None and stage is Stage.WANTED else {},
        sets_provider_id=is_ours_to_set and not (observation is not None and observation.listed.extras),
        ordered_at=_ordered_at(record, seen, lead),
        gone_at=record.gone_at,
    )


def _ordered_at(record: MachineRecord, seen: Machine | None, lead: float) -> float:
    """Since when it may have a node, by the wall clock: the engine's clock may be hours ahead after a jump.

    A node that seems older than its machine counts as the node of an earlier machine, and this one as never joined.
    """
    if record.ordered_at is None or was_found(record):
        return 0.0
    ordered = record.ordered_at - max(0.0, lead)
    created = seen.created_at if seen is not None else None
    return ordered if created is None else min(ordered, created.timestamp())


class NodeClaims:
    """Keeps the claims of one cloud, and publishes them when they have changed."""

    def __init__(self, observer: Observer, context: EngineContext) -> None:
        self._observer = observer
        self._context = context
        self._claims: dict[str, Claim] = {}
        self._made_of: dict[str, tuple[object, ...] | None] = {}
        self.gone: set[str] = set()  # machines that are gone and may still have a node
        self._noted: set[str] = set()
        self._has_changed = False
        self._is_whole = False  # whether all machines have been reviewed: a partial set would be taken for the whole
        self._handed_to: Cluster | None = None
        self._next_at = 0.0

    def note(self, record: MachineRecord) -> None:
        """A record of this cloud has changed."""
        if self._context.nodes.cluster is None:
            self._is_whole = False
            return
        self._noted.add(record.name)
        if record.state is State.GONE:
            self.gone.add(record.name)

    def begin_anew(self) -> None:
        """Drops all claims: the fleet was reloaded."""
        self._is_whole = False

    def wake_at(self) -> float | None:
        """When to publish next; None when there is nothing to publish, or no cluster."""
        if self._context.nodes.cluster is None or not self._is_whole or not self._context.may_act():
            return None
        return self._next_at if self._noted or self._is_due else None

    async def review(self) -> None:
        """Reviews all machines, including unchanged ones: addresses change, and claims expire."""
        fleet, cloud = self._context.fleet, self._observer.name
        if self._context.nodes.cluster is None:
            return
        names: list[str] = list(fleet.machines) if not self._is_whole else [*fleet.in_cloud(cloud), *self.gone]
        self._noted.clear()
        async for some in in_slices(names, SLICE):
            for name in some:
                self._update(name)
        for name in [name for name in self._claims if name not in fleet.machines]:
            self._update(name)
        self._is_whole = True

    async def hand(self, now: float) -> None:
        """Publishes all claims, if one has changed and the last publication was not too recent."""
        cluster = self._context.nodes.cluster
        at = self.wake_at()
        if cluster is None or at is None or now < at:
            return
        noted, self._noted = self._noted, set()
        async for some in in_slices(noted, SLICE):
            for name in some:
                self._update(name)
        if self._is_due and self._is_whole and self._context.may_act():
            cluster.claim(self._observer.name, tuple(self._claims.values()), self._context.may_act)
            self._has_changed, self._handed_to, self._next_at = False, cluster, now + _EVERY

    @property
    def _is_due(self) -> bool:
        return self._has_changed or self._handed_to is not self._context.nodes.cluster

    def _update(self, name: str) -> None:
        record = self._context.fleet.machines.get(name)
        made_of = self._ingredients(record) if record is not None and record.state is not State.GONE else None
        if made_of is not None and made_of == self._made_of.get(name):
            return  # nearly all of them, nearly always
        self._made_of[name] = made_of
        claim = self._claim(record) if record is not None and record.cloud == self._observer.name else None
        if claim is None:
            self.gone.discard(name)
            self._made_of.pop(name, None)
        elif record is not None and record.state is State.GONE:
            self.gone.add(name)
        if claim == self._claims.get(name):
            return
        self._has_changed = True
        if claim is None:
            del self._claims[name]
        else:
            self._claims[name] = claim

    def _ingredients(self, record: MachineRecord) -> tuple[object, ...]:
        """Everything that the claim of a machine depends on, while it is not gone."""
        fleet, observation = self._context.fleet, self._observer.peek(record.name)
        group, machine = fleet.groups.get(record.group), observation.listed.machine if observation is not None else None
        return (
            record,
            group.spec if group is not None else None,
            (tuple(machine.addresses), machine.created_at) if machine is not None else (),
            observation is not None and bool(observation.listed.extras),
            fleet.owner(record.provider_id),
            fleet.by_machine_id(record.cloud, record.machine_id),
            self._observer.traits.provider_id_by,
            self._context.observes_only(self._observer.name),
        )

    def _claim(self, record: MachineRecord) -> Claim | None:
        if record.state is State.GONE and not self._may_have_node(record):
            return None
        is_ours_to_set = self._observer.traits.provider_id_by is ProviderIdBy.CLOUDGRAFT
        observation = self._observer.peek(record.name)
        lead = self._context.clock.now() - wall_time(self._context.clock)
        claim = claim_of(record, observation, self._context.fleet, is_ours_to_set=is_ours_to_set, lead=lead)
        if claim is None:
            return None
        may_be_there = is_lost(record) or has_failed(record)
        stage = Stage.GOING if may_be_there and self._is_alive(record.name) else claim.stage
        return replace(claim, stage=stage, is_observed=self._context.observes_only(self._observer.name))

    def _is_alive(self, name: str) -> bool:
        """Whether its node is ready. Then its cloud's lists are wrong, and its pods must not be lost for that."""
        cluster = self._context.nodes.cluster
        found = cluster.joined(name) if cluster is not None else None
        return found is not None and found.node.ready

    def _may_have_node(self, record: MachineRecord) -> bool:
        """R57: while its node may outlive it and, if the cluster could not be seen during that time, until it can."""
        nodes, memory = self._context.nodes, self._context.settings.node_memory.total_seconds()
        if record.gone_at is None or self._context.clock.now() - record.gone_at <= memory:
            return True
        if record.name not in self._claims or nodes.cluster is None:
            return False  # the machine was gone before this process started
        return not nodes.is_known or nodes.cluster.joined(record.name) is not None


class NodeScan:
    """Updates the observations of one cloud's machines from the cluster.

    Counts nodes, measures scale-up times, and runs template learning.
    """

    def __init__(self, observer: Observer, context: EngineContext) -> None:
        self.template_learner = TemplateLearner(context)
        self.scale_up_times = ScaleUpTimes()
        self._observer = observer
        self._context = context
        self._has_news = False
        self._called_at = 0.0
        self._lock = asyncio.Lock()

    def follow(self, record: MachineRecord) -> None:
        """Takes a changed record. Without a cluster, a machine that runs counts as ready."""
        self.scale_up_times.note(record)
        if self._context.nodes.cluster is None and self.scale_up_times.is_awaited(record):
            self._arrived(record, self._context.clock.now())

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
                before = self._observer.observation(record.name).node
                observation = self._observer.see(record)
                node = observation.node
                if (node.joined, node.unready_since) != (before.joined, before.unready_since):
                    changed.append(record.name)
                count = counts.setdefault(record.group, NodeCount())
                count.joined += node.joined is True
                count.unready += node.unready_since is not None
                if node.is_ready and self.scale_up_times.is_awaited(record):
                    self._arrived(record, self._called_at)
                self.template_learner.look_at(record, observation)
        if nodes.is_known:
            nodes.count(cloud, counts)
        return changed

    def _arrived(self, record: MachineRecord, now: float) -> None:
        self.scale_up_times.arrived(record, now)
        if self._context.traces is not None:
            self._context.traces.ready(record)

    async def study(self) -> None:
        """Runs template learning on the scanned nodes."""
        if self._context.nodes.is_known:
            async with self._lock:
                await self.template_learner.study()
