"""Plays a small autoscaler: observes through the real client, decides with pure functions, acts through the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloudgraft.client import CloudProvider, NodeGroup
from cloudgraft.demo.checks import StoryError, check_groups, check_target
from cloudgraft.demo.cluster import Cluster, Node
from cloudgraft.demo.decide import (
    Candidate,
    Offer,
    Option,
    PricedOption,
    Room,
    Shape,
    choose_option,
    find_removable,
    list_options,
    place,
    track_unneeded,
)
from cloudgraft.demo.events import Event, GroupState, Kind, plural, short_name
from cloudgraft.demo.timetable import HOUR, MINUTE, PodSpec, date_time
from cloudgraft.sdk import AutoscalingOptions, Instance, InstanceState, NodeRef, UnsupportedError
from cloudgraft.service.options import FLAG_DEFAULTS

# -- observation -------------------------------------------------------------------------------------------------------
# Reads the server through the client, with the autoscaler's calls in the autoscaler's order.


_FAKE_NODE_REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


@dataclass(slots=True, kw_only=True)
class Seen:
    """One observation: the client's group objects, their state, and the group of each node."""

    handles: dict[str, NodeGroup]
    states: dict[str, GroupState]
    group_of: dict[str, str]

    async def recalculate(self) -> None:
        """Reads all targets again, as the autoscaler does after each change (R27)."""
        for group, handle in self.handles.items():
            self.states[group] = replace(self.states[group], target=await handle.target_size())

    def upcoming(self, cluster: Cluster) -> dict[str, int]:
        """The nodes that were requested and are not registered yet, by group (R26)."""
        registered = [self.group_of.get(node.name) for node in cluster.staying]
        return {group: max(0, state.target - registered.count(group)) for group, state in self.states.items()}


class Observer:
    """Observes the server once per loop. Remembers templates of groups that have nodes, as the autoscaler does."""

    def __init__(self, client: CloudProvider, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster
        self._real_shapes: dict[str, Shape] = {}
        self._prices: dict[str, float] = {}
        self._unregistered_since: dict[str, float] = {}

    async def observe(self, now: float) -> Seen:
        """Refresh, NodeGroups, NodeGroupForNode, TemplateNodeInfo, TargetSize, Nodes, GetOptions: in this order."""
        await self._client.gpu_label()
        await self._client.refresh()
        handles = {handle.id: handle for handle in await self._client.node_groups()}
        if not handles:
            raise StoryError("the server listed no node groups")
        group_of = await self._groups_of_nodes(handles)
        shapes = {group: await self._shape(handle) for group, handle in handles.items()}
        targets = {group: await handle.target_size() for group, handle in handles.items()}
        instances = {group: tuple(await handle.nodes()) for group, handle in handles.items()}
        for node in self._cluster.nodes:
            await options_of(handles[group_of[node]])
        await self._check_unregistered(handles, instances, now)
        await self._ask_prices(shapes, now)
        states = {
            group: GroupState(
                id=group,
                min_size=handle.min_size,
                max_size=handle.max_size,
                target=targets[group],
                shape=shapes[group],
                instances=instances[group],
                price=self._prices[group],
            )
            for group, handle in handles.items()
        }
        return Seen(handles=handles, states=states, group_of=group_of)

    async def _groups_of_nodes(self, handles: dict[str, NodeGroup]) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in self._cluster.nodes.values():
            group = await self._client.node_group_for_node(node.ref)
            if group is None or group.id not in handles:
                raise StoryError(f"the server does not know the node {node.name} any more")
            found[node.name] = group.id
            self._real_shapes[group.id] = node.shape
        return found

    async def _shape(self, handle: NodeGroup) -> Shape:
        """The template: from a real node once there was one, else from the server (R67)."""
        if handle.id in self._real_shapes:
            return self._real_shapes[handle.id]
        template = await handle.template_node_info()
        if template is None:
            raise StoryError(f"the server sent an empty template for {handle.id}")
        return Shape.of(template)

    async def _check_unregistered(
        self, handles: dict[str, NodeGroup], instances: dict[str, tuple[Instance, ...]], now: float
    ) -> None:
        """Asks about each instance without a node (R19), which must get one within the provision time (R47)."""
        known = {node.provider_id for node in self._cluster.nodes.values()}
        since: dict[str, float] = {}
        for group, instance in _expected(instances, known):
            owner = await self._client.node_group_for_node(fake_node(instance, "unregistered"))
            if owner is None or owner.id != group:
                raise StoryError(f"the server lists {short_name(instance.id)} in {group}, but then says otherwise")
            since[instance.id] = self._unregistered_since.get(instance.id, now)
            limit = (await options_of(handles[group])).max_node_provision_time
            if limit is not None and now - since[instance.id] > limit.total_seconds():
                raise StoryError(f"{short_name(instance.id)} did not register within {limit}")
        self._unregistered_since = since

    async def _ask_prices(self, shapes: dict[str, Shape], now: float) -> None:
        """Reads prices once, for the bill and the screen: the autoscaler itself asks only when it scales up."""
        for group, shape in shapes.items():
            if group not in self._prices:
                start, end = date_time(now), date_time(now + HOUR)
                self._prices[group] = await self._client.pricing().node_price(template_node(group, shape), start, end)


def _expected(instances: dict[str, tuple[Instance, ...]], registered: set[str]) -> Sequence[tuple[str, Instance]]:
    """The instances that are still to become nodes: one that failed or is being deleted never will."""
    return [
        (group, instance)
        for group, listed in instances.items()
        for instance in listed
        if instance.id not in registered and instance.state is not InstanceState.DELETING and instance.error is None
    ]


async def options_of(handle: NodeGroup) -> AutoscalingOptions:
    """The group's options; where it has none, the autoscaler's flags apply (R73)."""
    try:
        answer = await handle.get_options(FLAG_DEFAULTS)
    except UnsupportedError:
        answer = None
    return (answer or FLAG_DEFAULTS).over(FLAG_DEFAULTS)


def fake_node(instance: Instance, reason: str) -> NodeRef:
    """The node that the autoscaler makes up for an instance that has none (R16)."""
    return NodeRef(name=instance.id, provider_id=instance.id, annotations={_FAKE_NODE_REASON: reason})


def template_node(group: str, shape: Shape) -> NodeRef:
    """The node that the autoscaler makes up to ask for a price (R81)."""
    return NodeRef(name=f"template-node-for-{group}-1", labels=shape.labels)


# -- the autoscaler ----------------------------------------------------------------------------------------------------
# Its calls come in the order of the real one's main loop. It leaves out what needs a real Kubernetes.


# The flags of the real autoscaler, by their defaults.
_BACKOFF: Final = 5 * MINUTE  # --initial-node-group-backoff-duration
_DELAY_AFTER_ADD: Final = 10 * MINUTE  # --scale-down-delay-after-add
# The price expander weighs in this pod, so that tiny options do not win by a hair (R82).
_STABILIZER: Final = PodSpec(name="stabilize", milli_cpu=500)


class Autoscaler:
    """Grows and shrinks the groups of one server for one cluster."""

    def __init__(self, client: CloudProvider, cluster: Cluster, tell: Callable[[Event], Awaitable[None]]) -> None:
        """``tell`` is awaited for every event, in the middle of the loop in which it happens."""
        self.loops = 0
        self.unneeded: dict[str, float] = {}  # node -> since when
        self._client = client
        self._cluster = cluster
        self._tell = tell
        self._observer = Observer(client, cluster)
        self._seen = Seen(handles={}, states={}, group_of={})
        self._now = 0.0
        self._grew_at = float("-inf")
        self._backed_off_until: dict[str, float] = {}
        self._deleted: set[str] = set()

    @property
    def groups(self) -> tuple[GroupState, ...]:
        """All groups as last seen."""
        return tuple(self._seen.states.values())

    async def look(self, now: float) -> None:
        """The first half of a loop: asks the server for everything, and checks that the answers make sense."""
        self._now = now
        self.loops += 1
        seen = await self._observer.observe(now)
        for group, state in seen.states.items():
            seen.states[group] = replace(state, backed_off=now < self._backed_off_until.get(group, now))
        self._seen = seen
        check_groups(self.groups, self._deleted)

    async def act(self) -> None:
        """The second half of a loop: deletes failed machines, then scales up a group, or else removes a node."""
        failing = await self._delete_failed()
        if not await self._scale_up(failing):
            await self._scale_down()

    async def _check_change(self, expected: dict[str, int]) -> None:
        """Reads the targets back after a change: only these must have changed, and exactly so."""
        wanted = {group.id: group.target for group in self.groups} | expected
        await self._seen.recalculate()
        for group in self.groups:
            check_target(group.id, expected=wanted[group.id], actual=group.target)

    async def _check_deletion(self, groups: Iterable[str]) -> None:
        """Lists the groups again: deleted machines must be gone or deleting at once (R33, R38).

        The real autoscaler lists in the background, at any time; here it happens where it shows most.
        """
        for group in groups:
            instances = tuple(await self._seen.handles[group].nodes())
            self._seen.states[group] = replace(self._seen.states[group], instances=instances)
        check_groups(self.groups, self._deleted)

    # -- failed machines ---------------------------------------------------------------------------------------------

    async def _delete_failed(self) -> list[str]:
        """Deletes failed creations and backs off from their groups, so that another is tried at once (R36-R38)."""
        failing = {group.id: group for group in self.groups if group.failed}
        for group, state in failing.items():
            self._backed_off_until[group] = self._now + _BACKOFF
            self._seen.states[group] = replace(state, backed_off=True)
            await self._tell(_out_of_stock(state, self._now))
            handle = self._seen.handles[group]
            await options_of(handle)
            await handle.delete_nodes([fake_node(instance, "create-error") for instance in state.failed])
            self._deleted.update(instance.id for instance in state.failed)
        if failing:
            await self._check_change({group: state.target - len(state.failed) for group, state in failing.items()})
            await self._check_deletion(failing)
        return list(failing)

    # -- scale-up ----------------------------------------------------------------------------------------------------

    async def _scale_up(self, failing: Sequence[str]) -> bool:
        """Scales up one group for pods that neither nodes nor coming nodes have room for; False if none helps."""
        pods = place(self._cluster.pending, [*self._cluster.rooms(), *self._upcoming_rooms()]).left_over
        if not pods:
            return False
        options = list_options(pods, [await self._offer(group) for group in self.groups if _may_grow(group)])
        priced, stabilizer = await self._price(options)
        best = choose_option(priced, stabilizer=stabilizer)
        if best is None:
            return False
        group, nodes = best.option.group, best.option.nodes
        before = self._seen.states[group].target
        await self._seen.handles[group].increase_size(nodes)
        await self._check_change({group: before + nodes})
        self._grew_at = self._now
        await self._tell(_grown(best, priced, before=before, failing=failing, now=self._now))
        return True

    def _upcoming_rooms(self) -> list[Room]:
        return [
            Room.of(f"{group}-upcoming-{index}", self._seen.states[group].shape)
            for group, count in self._seen.upcoming(self._cluster).items()
            for index in range(count)
        ]

    async def _offer(self, group: GroupState) -> Offer:
        handle = self._seen.handles[group.id]
        target = await handle.target_size()
        await options_of(handle)
        return Offer(group=group.id, shape=group.shape, most=group.max_size - target)

    async def _price(self, options: Sequence[Option]) -> tuple[list[PricedOption], float]:
        """The cost of the options for the next hour; every pod is priced, with a call each (R82)."""
        if not options:
            return [], 0.0
        pricing, start, end = self._client.pricing(), date_time(self._now), date_time(self._now + HOUR)
        stabilizer = await pricing.pod_price(_STABILIZER.as_pod(), start, end)
        priced = []
        for option in options:
            node = template_node(option.group, self._seen.states[option.group].shape)
            node_price = await pricing.node_price(node, start, end)
            pods_price = sum([await pricing.pod_price(pod.as_pod(), start, end) for pod in option.pods])
            priced.append(PricedOption(option=option, node_price=node_price, pods_price=pods_price))
        return priced, stabilizer

    # -- scale-down --------------------------------------------------------------------------------------------------

    async def _scale_down(self) -> None:
        """Removes one node that was unneeded for as long as its group's options demand."""
        await self._seen.recalculate()
        candidates = [await self._candidate(node) for node in self._cluster.staying if self._spare(node) > 0]
        spare = {group.id: group.target - group.min_size for group in self.groups}
        removable = find_removable(candidates, self._cluster.rooms(), spare)
        self.unneeded = track_unneeded(self.unneeded, removable, self._now)
        if not self.unneeded or self._cluster.pending or self._now - self._grew_at < _DELAY_AFTER_ADD:
            return
        await self._seen.recalculate()
        for name, since in self.unneeded.items():
            wait = (await options_of(self._seen.handles[self._seen.group_of[name]])).scale_down_unneeded_time
            if wait is not None and self._now - since >= wait.total_seconds():
                await self._remove(self._cluster.nodes[name], unneeded_for=wait.total_seconds())
                return

    def _spare(self, node: Node) -> int:
        state = self._seen.states[self._seen.group_of[node.name]]
        return state.target - state.min_size

    async def _candidate(self, node: Node) -> Candidate:
        group = self._seen.group_of[node.name]
        threshold = (await options_of(self._seen.handles[group])).scale_down_utilization_threshold
        return Candidate(
            name=node.name,
            group=group,
            shape=node.shape,
            pods=tuple(self._cluster.pods_on(node.name)),
            threshold=threshold or 0.0,
        )

    async def _remove(self, node: Node, *, unneeded_for: float) -> None:
        """Taints, drains and deletes one node, in this order (R49, R85)."""
        group = self._seen.group_of[node.name]
        before = self._seen.states[group].target
        node.leaving = True
        moved = self._cluster.evict(node.name)
        self._cluster.schedule()
        await self._seen.handles[group].delete_nodes([node.ref])
        self._deleted.add(node.provider_id)
        await self._check_change({group: before - 1})
        await self._check_deletion([group])
        del self.unneeded[node.name]
        drained = f"is drained ({plural(len(moved), 'pod')} moved) and" if moved else "is empty, so it is"
        await self._tell(
            Event(
                kind=Kind.SCALE_DOWN,
                time=self._now,
                group=group,
                headline=f"{node.name} {drained} deleted",
                detail=f"DeleteNodes: {group} {before} → {before - 1}, unneeded for {unneeded_for / MINUTE:.0f} min",
            )
        )


def _may_grow(group: GroupState) -> bool:
    return not group.backed_off and group.target < group.max_size


def _out_of_stock(group: GroupState, now: float) -> Event:
    error = group.failed[0].error
    code = error.code if error else ""
    return Event(
        kind=Kind.OUT_OF_STOCK,
        time=now,
        group=group.id,
        headline=f"{group.id} is out of stock: {plural(len(group.failed), 'machine')} cannot be had",
        detail=f"Nodes: creating + errorInfo {code}; DeleteNodes takes them back",
    )


def _grown(
    best: PricedOption, priced: Sequence[PricedOption], *, before: int, failing: Sequence[str], now: float
) -> Event:
    group, nodes = best.option.group, best.option.nodes
    sizes = f"{group} {before} → {before + nodes}"
    pods = plural(len(best.option.pods), "pod")
    rivals = [one for one in priced if one is not best]
    beaten = " and ".join(_offered(one) for one in rivals)
    why = f"{_offered(best)}, cheaper than {beaten}" if rivals else f"{_offered(best)}, no other group can help"
    kind, headline = Kind.SCALE_UP, f"{sizes}, from zero" if before == 0 else sizes
    if failing and group not in failing:
        kind, headline = Kind.FALLBACK, f"falling back from {' and '.join(failing)} to {sizes}, in the same loop"
    return Event(kind=kind, time=now, group=group, headline=headline, detail=f"IncreaseSize for {pods}: {why}")


def _offered(priced: PricedOption) -> str:
    return f"{priced.option.nodes} {priced.option.group} {priced.price:.2f}/h"
