"""A provider small enough to read at a glance, for tests of what happens around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import (
    AutoscalingOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Pod,
    Taint,
)

GROUPS = (
    NodeGroup(id="lab", min_size=0, max_size=5, debug="the lab"),
    NodeGroup(id="größe", min_size=1, max_size=2_147_483_647),
)
INSTANCES = (
    Instance(id="lab://1", state=InstanceState.RUNNING),
    Instance(id="lab://2", state=InstanceState.CREATING),
    Instance(
        id="lab://3",
        state=InstanceState.CREATING,
        error=InstanceError(code="STOCKOUT", message="none left", error_class=ErrorClass.OUT_OF_RESOURCES),
    ),
    Instance(id="lab://4", state=InstanceState.DELETING),
    Instance(id="lab://5", state=InstanceState.UNSPECIFIED),
)
TEMPLATE = NodeTemplate(
    labels={"pool": "lab", "kubernetes.io/arch": "amd64"},
    annotations={"note": "n"},
    taints=(Taint(key="dedicated", value="batch"),),
    capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi"), "pods": Quantity(110)},
    allocatable={"cpu": Quantity("3920m"), "memory": Quantity("7.5Gi"), "pods": Quantity(110)},
)
OVERRIDES = AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=3), scale_down_utilization_threshold=0.25)


class PlainProvider(Provider):
    """Only what every provider must have."""

    def __init__(self) -> None:
        self.changes: list[object] = []
        self.target = 3

    async def node_groups(self) -> Sequence[NodeGroup]:
        return GROUPS

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return GROUPS[0] if node.provider_id.startswith("lab://") or node.labels.get("pool") == "lab" else None

    async def target_size(self, group: str) -> int:
        return self.target

    async def instances(self, group: str) -> Sequence[Instance]:
        return INSTANCES

    async def increase_size(self, group: str, delta: int) -> None:
        self.changes.append(("increase", group, delta))

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self.changes.append(("delete", group, tuple(nodes)))

    async def decrease_target_size(self, group: str, delta: int) -> None:
        self.changes.append(("decrease", group, delta))


class SmallProvider(PlainProvider):
    """Every capability there is, each in one line."""

    def __init__(self, overrides: AutoscalingOptions | None = OVERRIDES) -> None:
        super().__init__()
        self.overrides = overrides
        self.priced: list[tuple[NodeRef | Pod, datetime, datetime]] = []

    async def template(self, group: str) -> NodeTemplate:
        return TEMPLATE

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        return self.overrides

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        self.priced.append((node, start, end))
        return 0.5

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        self.priced.append((pod, start, end))
        return float(pod_requests(pod)["cpu"])

    async def gpu_label(self) -> str:
        return "example.com/gpu"

    async def gpu_types(self) -> Sequence[str]:
        return ("a100", "t4")

    async def refresh(self) -> None:
        self.changes.append("refresh")

    async def cleanup(self) -> None:
        self.changes.append("cleanup")
