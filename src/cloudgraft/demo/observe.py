"""One look at the server through the client, with the autoscaler's calls in the autoscaler's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cloudgraft.client import CloudProvider, NodeGroup
from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.cluster import Cluster
from cloudgraft.demo.decide import Shape
from cloudgraft.demo.events import GroupState, short_name
from cloudgraft.demo.times import HOUR, date_time
from cloudgraft.sdk import AutoscalingOptions, Instance, InstanceState, NodeRef, UnsupportedError
from cloudgraft.service.options import FLAG_DEFAULTS

__all__ = ["Observer", "Seen", "fake_node", "options_of", "template_node"]

_FAKE_NODE_REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one look showed: the client's group objects, their state, and the group of each node."""

    handles: dict[str, NodeGroup]
    states: dict[str, GroupState]
    group_of: dict[str, str]

    async def recalculate(self) -> None:
        """Reads all targets again, as the autoscaler does after each change (R27)."""
        for group, handle in self.handles.items():
            self.states[group] = replace(self.states[group], target=await handle.target_size())

    def upcoming(self, cluster: Cluster) -> dict[str, int]:
        """By group, the nodes that were asked for and are not registered yet (R26)."""
        registered = [self.group_of.get(node.name) for node in cluster.staying]
        return {group: max(0, state.target - registered.count(group)) for group, state in self.states.items()}


class Observer:
    """Looks at the server once per loop. Remembers what the autoscaler would: templates of groups that have nodes."""

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
        """From a real node once there was one, else from the server's template (R67)."""
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
        """For the bill and the screen, once: the autoscaler itself asks only when it scales up."""
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
    """How the group wants to be treated; what it does not say is as the autoscaler's flags have it (R73)."""
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
