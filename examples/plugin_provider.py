"""A provider as a plugin: one pool of pretended machines, in as few lines as the contract allows.

providers:
  - type: plugin
    command: [python3, examples/plugin_provider.py]
"""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.plugin import serve
from cloudgraft.sdk import Instance, InvalidArgumentError, NodeGroup, NodeRef, NodeTemplate, Provider, Quantity

POOL = NodeGroup(id="pool", min_size=0, max_size=5, debug="pretended machines")
RESOURCES = {"cpu": Quantity("2"), "memory": Quantity("8Gi"), "pods": Quantity(110)}


class PoolProvider(Provider):
    """One pool, in memory. A real one would ask and change its cloud instead."""

    def __init__(self) -> None:
        self._made: list[str] = []  # every machine there ever was: ids are never used twice
        self._alive: set[str] = set()

    async def node_groups(self) -> Sequence[NodeGroup]:
        return [POOL]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return POOL if self._machine_of(node) else None

    async def target_size(self, group: str) -> int:
        return len(self._alive)

    async def instances(self, group: str) -> Sequence[Instance]:
        return [Instance(id=machine) for machine in self._made if machine in self._alive]

    async def increase_size(self, group: str, delta: int) -> None:
        print(f"{delta} more machines")  # noqa: T201 - what a plugin prints goes to cloudgraft's log
        for _ in range(delta):
            self._made.append(f"pool://machine-{len(self._made) + 1}")
            self._alive.add(self._made[-1])

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        machines = [self._machine_of(node) for node in nodes]
        if None in machines:
            raise InvalidArgumentError("one of the nodes is not of this pool: none was deleted")
        self._alive.difference_update(machine for machine in machines if machine)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Every machine that was asked for came, so there is nothing to give back."""

    async def template(self, group: str) -> NodeTemplate:
        return NodeTemplate(labels={"pool": POOL.id}, capacity=RESOURCES, allocatable=RESOURCES)

    def _machine_of(self, node: NodeRef) -> str | None:
        candidates = (node.provider_id, f"pool://{node.name}")
        return next((machine for machine in candidates if machine in self._made), None)


if __name__ == "__main__":
    serve(PoolProvider())
