"""Determines a node's GPU from its labels and resources, as the autoscaler does on its own side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.types import NodeRef, NodeTemplate

# The resources that the autoscaler treats as GPUs, in the order in which it checks them.
_GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "amd.com/gpu",
    "microsoft.com/directx",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConfig:
    """A node's GPU: the provider's GPU label, its value on the node, and the name of the resource."""

    label: str
    type: str
    extended_resource_name: str


def node_gpu_config(gpu_label: str, node: NodeRef | NodeTemplate) -> GpuConfig | None:
    """The GPU of a node that has the label or an allocatable GPU resource; else None.

    A NodeRef has no resources, so only its labels count, and the resource is assumed to be NVIDIA's, as in Go.
    """
    allocatable = node.allocatable if isinstance(node, NodeTemplate) else {}
    resource = next((name for name in _GPU_RESOURCES if name in allocatable and allocatable[name].value), None)
    if gpu_label not in node.labels and resource is None:
        return None
    return GpuConfig(
        label=gpu_label,
        type=node.labels.get(gpu_label, ""),
        extended_resource_name=resource or _GPU_RESOURCES[0],
    )
