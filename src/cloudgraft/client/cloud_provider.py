"""Implements Go's ``CloudProvider`` and ``NodeGroup`` of the autoscaler, method by method, with their caches.

What is cached, and until when (R12, R17, R78):

    node_groups                until refresh(); an error is an empty list, not cached
    node_group_for_node        until refresh(), by name and provider id; "not managed" and errors are not cached
    gpu_label                  for ever; an error is "", not cached
    get_available_gpu_types    for ever; an error is None, not cached
    a group's id, min, max, debug    for the life of the group object
    a group's template         at its first answer, for the life of the group object
    all the rest               never
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.errors import NotImplementedByProtocolError
from cloudgraft.client.remote import RemoteProvider
from cloudgraft.sdk import types
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceState, NodeRef, NodeTemplate, Pod, Taint

_log = logging.getLogger("cloudgraft.client")


class NodeGroup:
    """One node group of a :class:`CloudProvider`.

    ``id``, ``min_size``, ``max_size`` and ``debug`` are what the server said when this object was made, and never
    change; a new object comes after the next refresh. The template is asked for once per object. Everything else is
    a call each time.
    """

    def __init__(self, remote: RemoteProvider, group: types.NodeGroup) -> None:
        self._remote = remote
        self._group = group
        self._lock = asyncio.Lock()
        # a tuple, because "no template" is a cached answer too
        self._template: tuple[NodeTemplate | None] | None = None

    def __repr__(self) -> str:
        """The group's id and limits."""
        return f"NodeGroup({self.id!r}, {self.min_size}..{self.max_size})"

    @property
    def id(self) -> str:
        """Go's ``Id``. For the life of this object."""
        return self._group.id

    @property
    def min_size(self) -> int:
        """Go's ``MinSize``. For the life of this object."""
        return self._group.min_size

    @property
    def max_size(self) -> int:
        """Go's ``MaxSize``. For the life of this object."""
        return self._group.max_size

    @property
    def debug(self) -> str:
        """Go's ``Debug``. For the life of this object."""
        return self._group.debug

    @property
    def exist(self) -> bool:
        """Go's ``Exist``: every group that a server lists exists (R14)."""
        return True

    @property
    def autoprovisioned(self) -> bool:
        """Go's ``Autoprovisioned``: the autoscaler creates no groups (R14)."""
        return False

    async def target_size(self) -> int:
        """Go's ``TargetSize``. Never cached."""
        return await self._remote.target_size(self.id)

    async def increase_size(self, delta: int) -> None:
        """Go's ``IncreaseSize``."""
        await self._remote.increase_size(self.id, delta)

    async def atomic_increase_size(self, delta: int) -> None:
        """Go's ``AtomicIncreaseSize``: not on the wire (R48)."""
        raise NotImplementedByProtocolError(f"no call increases group {self.id!r} by {delta} atomically")

    async def delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """Go's ``DeleteNodes``."""
        await self._remote.delete_nodes(self.id, nodes)

    async def force_delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """Go's ``ForceDeleteNodes``: not on the wire (B11). The autoscaler then uses :meth:`delete_nodes`."""
        raise NotImplementedByProtocolError(f"no call deletes {len(nodes)} nodes of group {self.id!r} by force")

    async def decrease_target_size(self, delta: int) -> None:
        """Go's ``DecreaseTargetSize``; ``delta`` is negative."""
        await self._remote.decrease_target_size(self.id, delta)

    async def nodes(self) -> list[Instance]:
        """Go's ``Nodes``. Never cached. An error on an instance without a state is dropped, as in Go (R34)."""
        return [
            replace(instance, error=None) if instance.state is InstanceState.UNSPECIFIED else instance
            for instance in await self._remote.instances(self.id)
        ]

    async def template_node_info(self) -> NodeTemplate | None:
        """Go's ``TemplateNodeInfo``. Cached at the first answer for the life of this object; errors are not.

        None is the answer of a server that sent no node. A server without templates raises UnsupportedError.
        """
        async with self._lock:
            if self._template is not None:
                _log_hit("NodeGroupTemplateNodeInfo", node_group=self.id)
            else:
                self._template = (await self._remote.find_template(self.id),)
            return self._template[0]

    async def create(self) -> NoReturn:
        """Go's ``Create``: not on the wire (R14)."""
        raise NotImplementedByProtocolError(f"no call creates a group such as {self.id!r}")

    async def delete(self) -> None:
        """Go's ``Delete``: not on the wire (R14)."""
        raise NotImplementedByProtocolError(f"no call deletes a group such as {self.id!r}")

    async def get_options(self, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Go's ``GetOptions``. Never cached. None or UnsupportedError: the defaults apply (R73)."""
        return await self._remote.options(self.id, defaults)


# -- GPUs, which the autoscaler finds on its own side ------------------------------------------------------------------


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


# -- Limits of the whole cluster ---------------------------------------------------------------------------------------
# They come from the autoscaler's flags and never from a server.


_NO_LIMIT = (1 << 63) - 1  # Go's largest int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimiter:
    """Minimum and maximum totals by resource (``cpu`` in cores, ``memory`` in bytes, ...); none unless given."""

    min_limits: Mapping[str, int] = field(default_factory=dict)
    max_limits: Mapping[str, int] = field(default_factory=dict)

    def get_min(self, resource: str) -> int:
        """The minimum total of a resource; 0 without a limit."""
        return max(self.min_limits.get(resource, 0), 0)

    def get_max(self, resource: str) -> int:
        """The maximum total of a resource; the largest 64-bit number without a limit."""
        return self.max_limits.get(resource, _NO_LIMIT)

    def has_min_limit_set(self, resource: str) -> bool:
        """Whether there is a lower limit; zero and less is none, as in Go."""
        return self.min_limits.get(resource, 0) > 0

    def has_max_limit_set(self, resource: str) -> bool:
        """Whether there is an upper limit."""
        return resource in self.max_limits

    def get_resources(self) -> list[str]:
        """The names of all resources with a limit, sorted."""
        return sorted({name for name in self.min_limits if self.has_min_limit_set(name)} | set(self.max_limits))


_NAME: Final = "externalgrpc"


class PricingModel:
    """Go's ``PricingModel``: prices, never cached."""

    def __init__(self, remote: RemoteProvider) -> None:
        self._remote = remote

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Go's ``NodePrice``. UnsupportedError from a server without prices."""
        return await self._remote.node_price(node, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Go's ``PodPrice``. UnsupportedError from a server without prices."""
        return await self._remote.pod_price(pod, start, end)


class CloudProvider:
    """The autoscaler's view of a server. The module's docstring lists what is cached.

    One lock is held during every cached call, as in Go: a slow NodeGroupForNode makes NodeGroups wait.
    """

    def __init__(self, remote: RemoteProvider, *, resource_limiter: ResourceLimiter | None = None) -> None:
        """Takes ownership of ``remote``: :meth:`close` closes it."""
        self._remote = remote
        self._resource_limiter = resource_limiter or ResourceLimiter()
        self._lock = asyncio.Lock()
        self._node_groups: list[NodeGroup] | None = None
        self._group_of_node: dict[str, NodeGroup] = {}
        self._gpu_label: str | None = None
        self._gpu_types: frozenset[str] | None = None

    @classmethod
    def connect(
        cls, config: CloudConfig | str | Path, *, resource_limiter: ResourceLimiter | None = None
    ) -> CloudProvider:
        """A provider for the server of a config, or of a cloud-config file; the first call dials."""
        read = config if isinstance(config, CloudConfig) else CloudConfig.load(config)
        return cls(RemoteProvider.connect(read), resource_limiter=resource_limiter)

    @property
    def name(self) -> str:
        """Go's ``Name``: always ``externalgrpc``."""
        return _NAME

    async def node_groups(self) -> list[NodeGroup]:
        """Go's ``NodeGroups``. Cached until :meth:`refresh`. An error becomes an empty list and is not cached."""
        async with self._lock:
            if self._node_groups is not None:
                _log_hit("NodeGroups")
            else:
                try:
                    groups = await self._remote.node_groups()
                except CloudgraftError:  # logged where the call was made
                    return []
                self._node_groups = [NodeGroup(self._remote, group) for group in groups]
            return list(self._node_groups)

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Go's ``NodeGroupForNode``: None for a node that no group owns.

        Cached until :meth:`refresh`, under the node's name and provider id together, for the latter may be empty. A
        node without a group and an error are not cached.
        """
        key = node.name + node.provider_id
        async with self._lock:
            cached = self._group_of_node.get(key)
            if cached is not None:
                _log_hit("NodeGroupForNode", node=node.name, provider_id=node.provider_id)
                return cached
            found = await self._remote.node_group_for_node(node)
            if found is None:
                return None
            group = self._group_of_node[key] = NodeGroup(self._remote, found)
            return group

    async def has_instance(self, node: NodeRef) -> bool:
        """Go's ``HasInstance``: not on the wire (R86)."""
        raise NotImplementedByProtocolError(f"no call says whether node {node.name!r} has an instance")

    def pricing(self) -> PricingModel:
        """Go's ``Pricing``: always present; a server without prices raises an error when a price is requested."""
        return PricingModel(self._remote)

    async def get_available_machine_types(self) -> list[str]:
        """Go's ``GetAvailableMachineTypes``: not on the wire."""
        raise NotImplementedByProtocolError("no call lists the machine types")

    async def new_node_group(
        self,
        machine_type: str,
        *,
        labels: Mapping[str, str] | None = None,
        system_labels: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        extra_resources: Mapping[str, Quantity] | None = None,
    ) -> NoReturn:
        """Go's ``NewNodeGroup``: not on the wire (R14)."""
        del labels, system_labels, taints, extra_resources
        raise NotImplementedByProtocolError(f"no call makes a node group of machine type {machine_type!r}")

    def get_resource_limiter(self) -> ResourceLimiter:
        """Go's ``GetResourceLimiter``: what the constructor was given."""
        return self._resource_limiter

    async def gpu_label(self) -> str:
        """Go's ``GPULabel``. Cached for ever. An error becomes an empty label and is not cached (R78)."""
        async with self._lock:
            if self._gpu_label is not None:
                _log_hit("GPULabel")
            else:
                try:
                    self._gpu_label = await self._remote.gpu_label()
                except CloudgraftError:
                    return ""
            return self._gpu_label

    async def get_available_gpu_types(self) -> frozenset[str] | None:
        """Go's ``GetAvailableGPUTypes``. Cached for ever. An error becomes None and is not cached."""
        async with self._lock:
            if self._gpu_types is not None:
                _log_hit("GetAvailableGPUTypes")
            else:
                try:
                    self._gpu_types = frozenset(await self._remote.gpu_types())
                except CloudgraftError:
                    return None
            return self._gpu_types

    async def get_node_gpu_config(self, node: NodeRef | NodeTemplate) -> GpuConfig | None:
        """Go's ``GetNodeGpuConfig``: computed here, from :meth:`gpu_label` and the node."""
        return node_gpu_config(await self.gpu_label(), node)

    async def cleanup(self) -> None:
        """Go's ``Cleanup``: tells the server that the autoscaler is shutting down. Does not close the connection."""
        await self._remote.cleanup()

    async def refresh(self) -> None:
        """Go's ``Refresh``: clears the cached groups and node groups first, then calls.

        So the caches are empty even when the call fails.
        """
        async with self._lock:
            self._node_groups = None
            self._group_of_node = {}
        await self._remote.refresh()

    async def close(self) -> None:
        """Closes the connection."""
        await self._remote.close()

    async def __aenter__(self) -> Self:
        """The provider itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connection."""
        await self.close()


def _log_hit(rpc: str, **about: str) -> None:
    _log.debug("returning cached %s", rpc, extra={"rpc": rpc, **about})
