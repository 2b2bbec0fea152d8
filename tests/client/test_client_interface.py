"""The client mirrors the whole of Go's CloudProvider and NodeGroup, and so does its sync face."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgraft.client import (
    CloudProvider,
    GpuConfig,
    NodeGroup,
    NotImplementedByProtocolError,
    PricingModel,
    ResourceLimiter,
    SyncCloudProvider,
    SyncNodeGroup,
    SyncPricingModel,
)
from cloudgraft.sdk import NodeRef, NodeTemplate, Pod, Quantity
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import CountingServer

_NODE = NodeRef(name="n", provider_id="sim://n")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)

# The methods of the Go interfaces (cloudprovider.CloudProvider, NodeGroup, PricingModel), by our names.
_CLOUD_PROVIDER = {
    "Name": "name",
    "NodeGroups": "node_groups",
    "NodeGroupForNode": "node_group_for_node",
    "HasInstance": "has_instance",
    "Pricing": "pricing",
    "GetAvailableMachineTypes": "get_available_machine_types",
    "NewNodeGroup": "new_node_group",
    "GetResourceLimiter": "get_resource_limiter",
    "GPULabel": "gpu_label",
    "GetAvailableGPUTypes": "get_available_gpu_types",
    "GetNodeGpuConfig": "get_node_gpu_config",
    "Cleanup": "cleanup",
    "Refresh": "refresh",
}
_NODE_GROUP = {
    "MaxSize": "max_size",
    "MinSize": "min_size",
    "TargetSize": "target_size",
    "IncreaseSize": "increase_size",
    "AtomicIncreaseSize": "atomic_increase_size",
    "DeleteNodes": "delete_nodes",
    "ForceDeleteNodes": "force_delete_nodes",
    "DecreaseTargetSize": "decrease_target_size",
    "Id": "id",
    "Debug": "debug",
    "Nodes": "nodes",
    "TemplateNodeInfo": "template_node_info",
    "Exist": "exist",
    "Create": "create",
    "Delete": "delete",
    "Autoprovisioned": "autoprovisioned",
    "GetOptions": "get_options",
}
_PRICING = {"NodePrice": "node_price", "PodPrice": "pod_price"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("async_kind", "sync_kind", "go", "own"),
    [
        (CloudProvider, SyncCloudProvider, _CLOUD_PROVIDER, {"close", "connect"}),
        (NodeGroup, SyncNodeGroup, _NODE_GROUP, set()),
        (PricingModel, SyncPricingModel, _PRICING, set()),
    ],
)
def test_every_go_method_has_an_async_and_a_blocking_one_alike(
    async_kind: type, sync_kind: type, go: dict[str, str], own: set[str]
) -> None:
    assert public(async_kind) == public(sync_kind) == set(go.values()) | own
    for name, ours in go.items():
        assert f"``{name}``" in (inspect.getdoc(getattr(async_kind, ours)) or "")
        one, other = getattr(async_kind, ours), getattr(sync_kind, ours)
        if not isinstance(one, property):
            assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters)


async def group_of(server: CountingServer, provider: CloudProvider) -> NodeGroup:
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(nodeGroups=[pb.NodeGroup(id="g", minSize=1, maxSize=3)])
    (group,) = await provider.node_groups()
    server.calls.clear()
    return group


async def test_what_is_fixed_in_go_is_fixed_here(server: CountingServer, provider: CloudProvider) -> None:
    """R14."""
    group = await group_of(server, provider)
    assert provider.name == "externalgrpc"
    assert (group.exist, group.autoprovisioned) == (True, False)
    assert repr(group) == "NodeGroup('g', 1..3)"


_NOT_ON_THE_WIRE: dict[str, Callable[[CloudProvider, NodeGroup], Awaitable[object]]] = {
    "HasInstance": lambda provider, group: provider.has_instance(_NODE),
    "GetAvailableMachineTypes": lambda provider, group: provider.get_available_machine_types(),
    "NewNodeGroup": lambda provider, group: provider.new_node_group("large", labels={"a": "b"}),
    "AtomicIncreaseSize": lambda provider, group: group.atomic_increase_size(1),
    "ForceDeleteNodes": lambda provider, group: group.force_delete_nodes([_NODE]),
    "Create": lambda provider, group: group.create(),
    "Delete": lambda provider, group: group.delete(),
}


@pytest.mark.parametrize("name", _NOT_ON_THE_WIRE)
async def test_what_is_not_on_the_wire_is_a_typed_error_without_a_call(
    server: CountingServer, provider: CloudProvider, name: str
) -> None:
    """B11: where the Go client returns ErrNotImplemented."""
    group = await group_of(server, provider)
    with pytest.raises(NotImplementedByProtocolError):
        await _NOT_ON_THE_WIRE[name](provider, group)
    assert not server.calls


async def test_changes_and_prices_reach_the_server(server: CountingServer, provider: CloudProvider) -> None:
    group = await group_of(server, provider)
    await group.increase_size(2)
    await group.decrease_target_size(-1)
    await group.delete_nodes([_NODE])
    await provider.pricing().node_price(_NODE, _NOW, _NOW)
    await provider.pricing().pod_price(Pod(name="p"), _NOW, _NOW)
    await provider.cleanup()
    assert [name for name, _ in server.requests[1:]] == [
        "NodeGroupIncreaseSize",
        "NodeGroupDecreaseTargetSize",
        "NodeGroupDeleteNodes",
        "PricingNodePrice",
        "PricingPodPrice",
        "Cleanup",
    ]


async def test_the_resource_limiter_is_the_one_of_the_constructor(server: CountingServer) -> None:
    limiter = ResourceLimiter(min_limits={"cpu": 2, "memory": 0}, max_limits={"cpu": 10, "gpu": 4})
    async with CloudProvider.connect(server.config, resource_limiter=limiter) as provider:
        assert provider.get_resource_limiter() is limiter
    assert (limiter.get_min("cpu"), limiter.get_max("cpu")) == (2, 10)
    assert (limiter.get_min("memory"), limiter.get_max("memory")) == (0, 2**63 - 1)
    assert limiter.get_resources() == ["cpu", "gpu"]
    assert (limiter.has_min_limit_set("memory"), limiter.has_max_limit_set("gpu")) == (False, True)


async def test_without_a_resource_limiter_there_are_no_limits(provider: CloudProvider) -> None:
    assert provider.get_resource_limiter() == ResourceLimiter()


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (NodeRef(labels={"gpu": "t4"}), GpuConfig(label="gpu", type="t4", extended_resource_name="nvidia.com/gpu")),
        (NodeRef(labels={"other": "t4"}), None),
        (NodeTemplate(allocatable={"cpu": Quantity("4")}), None),
        (NodeTemplate(allocatable={"nvidia.com/gpu": Quantity("0")}), None),
        (
            NodeTemplate(allocatable={"amd.com/gpu": Quantity("2")}),
            GpuConfig(label="gpu", type="", extended_resource_name="amd.com/gpu"),
        ),
        (
            NodeTemplate(labels={"gpu": "x"}, allocatable={"habana.ai/gaudi": Quantity("1")}),
            GpuConfig(label="gpu", type="x", extended_resource_name="habana.ai/gaudi"),
        ),
    ],
)
async def test_the_gpu_of_a_node_follows_from_label_or_allocatable(
    server: CountingServer, provider: CloudProvider, node: NodeRef | NodeTemplate, expected: GpuConfig | None
) -> None:
    server.answers["GPULabel"] = pb.GPULabelResponse(label="gpu")
    assert await provider.get_node_gpu_config(node) == expected
    await provider.get_node_gpu_config(node)
    assert server.calls == {"GPULabel": 1}


async def test_connect_takes_a_cloud_config_file(server: CountingServer, tmp_path: Path) -> None:
    file = tmp_path / "cloud-config.yaml"
    file.write_text(f"address: {server.address}\n")
    async with CloudProvider.connect(file) as provider:
        await provider.refresh()
    assert server.calls["Refresh"] == 1
    with pytest.raises(InvalidArgumentError, match="no-such"):
        CloudProvider.connect(tmp_path / "no-such")
