"""A provider as quick as one can be: N nodes in G groups, all in dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cluster import Cluster
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef


class BenchProvider(Provider):
    """Answers every question with one look-up, so that what is measured is the service context it."""

    def __init__(self, cluster: Cluster) -> None:
        self._groups = {
            group: NodeGroup(id=group, min_size=0, max_size=1000, debug=f"{group} (bench)") for group in cluster.groups
        }
        self._members: dict[str, list[Instance]] = {group: [] for group in cluster.groups}
        self._group_of: dict[str, NodeGroup] = {}
        for node in cluster.nodes:
            group = cluster.group_of(node)
            self._members[group].append(Instance(id=node.provider_id))
            self._group_of[node.provider_id] = self._group_of[node.name] = self._groups[group]

    async def node_groups(self) -> Sequence[NodeGroup]:
        """All groups."""
        return list(self._groups.values())

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """By provider id, else by name (R22)."""
        return self._group_of.get(node.provider_id) or self._group_of.get(node.name)

    async def target_size(self, group: str) -> int:
        """As many as there are."""
        return len(self._members[group])

    async def instances(self, group: str) -> Sequence[Instance]:
        """The nodes of the group."""
        return self._members[group]

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """The autoscaler's own."""
        return None

    async def increase_size(self, group: str, delta: int) -> None:
        """Never called here."""
        raise NotImplementedError

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Never called here."""
        raise NotImplementedError

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Never called here."""
        raise NotImplementedError
