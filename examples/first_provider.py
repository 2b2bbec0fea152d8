"""One node group whose machines are files in a directory, so that it can be tried without any cloud."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cloudgraft.sdk import Instance, InvalidArgumentError, NodeGroup, NodeRef, NodeTemplate, Provider, Quantity
from cloudgraft.server import ServeOptions, serve

LAB = NodeGroup(id="lab", min_size=0, max_size=3)
SIZE = {"cpu": Quantity("4"), "memory": Quantity("16Gi"), "pods": Quantity("110")}


class LabProvider(Provider):
    """Each machine is a file, and what the file says is its state: "running" or "gone"."""

    def __init__(self, directory: Path = Path("machines")) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    async def node_groups(self) -> Sequence[NodeGroup]:
        return [LAB]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return LAB if self.find(node) else None

    async def target_size(self, group: str) -> int:
        return len(self.running())

    async def instances(self, group: str) -> Sequence[Instance]:
        return [Instance(id=f"lab://{machine.name}") for machine in self.running()]

    async def increase_size(self, group: str, delta: int) -> None:
        made = len(self.machines())  # gone ones included: no name is used twice
        for number in range(made + 1, made + delta + 1):
            (self.directory / f"lab-{number}").write_text("running")

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        machines = [self.find(node) for node in nodes]
        if None in machines:
            raise InvalidArgumentError("one of the nodes is not a machine of the lab: none was deleted")
        for machine in filter(None, machines):
            machine.write_text("gone")

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Every machine that was asked for is there, so there is nothing to give back."""

    async def template(self, group: str) -> NodeTemplate:
        return NodeTemplate(labels={"pool": "lab"}, capacity=SIZE, allocatable=SIZE)

    def machines(self) -> list[Path]:
        return sorted(self.directory.glob("lab-*"))

    def running(self) -> list[Path]:
        return [machine for machine in self.machines() if machine.read_text() == "running"]

    def find(self, node: NodeRef) -> Path | None:
        name = (node.provider_id or node.name).removeprefix("lab://")
        return next((machine for machine in self.machines() if machine.name == name), None)


if __name__ == "__main__":
    serve(LabProvider(), ServeOptions(listen=sys.argv[1]))
