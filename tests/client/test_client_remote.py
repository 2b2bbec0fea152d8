"""A server of any age as a Provider: one plain call per method, old and new fields both sent and read (law 8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk import (
    AutoscalingOptions,
    Container,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Pod,
    Quantity,
)
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, NotFoundError, OutOfStockError, UnsupportedError
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.kubernetes import decode_pod, encode_node
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import CountingServer, StatusError

_NODE = NodeRef(name="n", provider_id="sim://n", labels={"a": "b"}, annotations={"c": "d"})
_POD = Pod(name="p", namespace="ns", containers=(Container(name="c", requests={"cpu": Quantity("500m")}),))
_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_END = _START + timedelta(hours=1)
_TEMPLATE = NodeTemplate(labels={"pool": "a"}, capacity={"cpu": Quantity("4")}, allocatable={"cpu": Quantity("3900m")})
_DEFAULTS = AutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=0.6,
    scale_down_unneeded_time=timedelta(minutes=10),
    scale_down_unready_time=timedelta(minutes=20),
    max_node_provision_time=timedelta(minutes=15),
    zero_or_max_node_scaling=True,
    ignore_daemon_sets_utilization=True,
)

Ask = Callable[[RemoteProvider], Awaitable[object]]
_METHODS: dict[str, Ask] = {
    "NodeGroups": lambda remote: remote.node_groups(),
    "NodeGroupForNode": lambda remote: remote.node_group_for_node(_NODE),
    "PricingNodePrice": lambda remote: remote.node_price(_NODE, _START, _END),
    "PricingPodPrice": lambda remote: remote.pod_price(_POD, _START, _END),
    "GPULabel": lambda remote: remote.gpu_label(),
    "GetAvailableGPUTypes": lambda remote: remote.gpu_types(),
    "Cleanup": lambda remote: remote.cleanup(),
    "Refresh": lambda remote: remote.refresh(),
    "NodeGroupTargetSize": lambda remote: remote.target_size("g"),
    "NodeGroupIncreaseSize": lambda remote: remote.increase_size("g", 2),
    "NodeGroupDeleteNodes": lambda remote: remote.delete_nodes("g", [_NODE, NodeRef(name="m")]),
    "NodeGroupDecreaseTargetSize": lambda remote: remote.decrease_target_size("g", -2),
    "NodeGroupNodes": lambda remote: remote.instances("g"),
    "NodeGroupTemplateNodeInfo": lambda remote: remote.find_template("g"),
    "NodeGroupGetOptions": lambda remote: remote.options("g", _DEFAULTS),
}


def test_every_call_of_the_protocol_has_a_method() -> None:
    assert set(_METHODS) == set(RPCS)


@pytest.mark.parametrize("name", RPCS)
async def test_every_method_is_one_call_each_time(server: CountingServer, remote: RemoteProvider, name: str) -> None:
    await _METHODS[name](remote)
    await _METHODS[name](remote)
    assert server.calls == {name: 2}


@pytest.mark.parametrize("name", RPCS)
async def test_code_12_is_unsupported_for_every_method(
    server: CountingServer, remote: RemoteProvider, name: str
) -> None:
    """R8."""
    server.answers[name] = StatusError(grpc.StatusCode.UNIMPLEMENTED, "not here")
    with pytest.raises(UnsupportedError, match="not here"):
        await _METHODS[name](remote)


@pytest.mark.parametrize("name", RPCS)
async def test_an_error_of_the_server_arrives_with_class_message_and_time_to_wait(
    server: CountingServer, remote: RemoteProvider, name: str
) -> None:
    server.answers[name] = StatusError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "no more of these",
        (("cloudgraft-error", "out_of_stock"), ("cloudgraft-retry-after", "90")),
    )
    with pytest.raises(OutOfStockError, match="no more of these") as failed:
        await _METHODS[name](remote)
    assert failed.value.retry_after == 90


async def test_groups_nodes_and_sizes_are_read(server: CountingServer, remote: RemoteProvider) -> None:
    message = pb.NodeGroup(id="g", minSize=1, maxSize=3, debug="d")
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(nodeGroups=[message])
    server.answers["NodeGroupForNode"] = pb.NodeGroupForNodeResponse(nodeGroup=message)
    server.answers["NodeGroupTargetSize"] = pb.NodeGroupTargetSizeResponse(targetSize=2)
    group = NodeGroup(id="g", min_size=1, max_size=3, debug="d")
    assert await remote.node_groups() == [group]
    assert await remote.node_group_for_node(_NODE) == group
    assert await remote.target_size("g") == 2
    assert server.last_request("NodeGroupForNode").node == pb.ExternalGrpcNode(
        providerID="sim://n", name="n", labels={"a": "b"}, annotations={"c": "d"}
    )
    assert server.last_request("NodeGroupTargetSize").id == "g"


@pytest.mark.parametrize(
    "answer", [pb.NodeGroupForNodeResponse(), pb.NodeGroupForNodeResponse(nodeGroup=pb.NodeGroup())]
)
async def test_no_group_or_an_empty_id_is_a_node_that_is_not_managed(
    server: CountingServer, remote: RemoteProvider, answer: pb.NodeGroupForNodeResponse
) -> None:
    """R17."""
    server.answers["NodeGroupForNode"] = answer
    assert await remote.node_group_for_node(_NODE) is None


async def test_changes_carry_group_delta_and_nodes(server: CountingServer, remote: RemoteProvider) -> None:
    for name in ("NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"):
        await _METHODS[name](remote)
    assert server.last_request("NodeGroupIncreaseSize") == pb.NodeGroupIncreaseSizeRequest(id="g", delta=2)
    assert server.last_request("NodeGroupDecreaseTargetSize") == pb.NodeGroupDecreaseTargetSizeRequest(id="g", delta=-2)
    deleted = server.last_request("NodeGroupDeleteNodes")
    assert (deleted.id, [node.name for node in deleted.nodes]) == ("g", ["n", "m"])


async def test_instances_are_read_with_state_and_error(server: CountingServer, remote: RemoteProvider) -> None:
    server.answers["NodeGroupNodes"] = pb.NodeGroupNodesResponse(
        instances=[
            pb.Instance(id="1", status=pb.InstanceStatus(instanceState=pb.InstanceStatus.instanceRunning)),
            pb.Instance(
                id="2",
                status=pb.InstanceStatus(
                    instanceState=pb.InstanceStatus.instanceCreating,
                    errorInfo=pb.InstanceErrorInfo(errorCode="x", errorMessage="y", instanceErrorClass=1),
                ),
            ),
        ]
    )
    assert await remote.instances("g") == [
        Instance(id="1", state=InstanceState.RUNNING),
        Instance(id="2", state=InstanceState.CREATING, error=InstanceError(code="x", message="y", error_class=1)),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=encode_node(_TEMPLATE)),
        pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=encode_node(_TEMPLATE)),
        pb.NodeGroupTemplateNodeInfoResponse(
            nodeInfo=encode_node(NodeTemplate(labels={"old": "yes"})), nodeBytes=encode_node(_TEMPLATE)
        ),
    ],
    ids=["server up to 1.34.1", "server since 1.35", "both, the new one wins"],
)
async def test_the_template_is_read_from_whichever_field_the_server_filled(
    server: CountingServer, remote: RemoteProvider, answer: pb.NodeGroupTemplateNodeInfoResponse
) -> None:
    server.answers["NodeGroupTemplateNodeInfo"] = answer
    assert await remote.template("g") == _TEMPLATE


async def test_an_answer_without_a_template_is_an_error_and_none_for_find(
    server: CountingServer, remote: RemoteProvider
) -> None:
    """R65: passed on, it would crash the autoscaler."""
    assert await remote.find_template("g") is None
    with pytest.raises(InternalError, match="empty template for group 'g'"):
        await remote.template("g")


async def test_a_template_that_cannot_be_read_is_the_servers_fault(
    server: CountingServer, remote: RemoteProvider
) -> None:
    server.answers["NodeGroupTemplateNodeInfo"] = pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=b"\xff\xff")
    with pytest.raises(InternalError, match="the template of group 'g'"):
        await remote.template("g")


async def test_options_are_asked_for_with_every_duration_in_both_encodings(
    server: CountingServer, remote: RemoteProvider
) -> None:
    assert await remote.options("g", _DEFAULTS) is None  # R73: unset means the autoscaler's defaults
    request = server.last_request("NodeGroupGetOptions")
    minute = 60_000_000_000
    assert request.id == "g"
    assert request.defaults == pb.NodeGroupAutoscalingOptions(
        scaleDownUtilizationThreshold=0.5,
        scaleDownGpuUtilizationThreshold=0.6,
        scaleDownUnneededTime=pb.NanosecondDuration(nanoseconds=10 * minute),
        scaleDownUnreadyTime=pb.NanosecondDuration(nanoseconds=20 * minute),
        MaxNodeProvisionTime=pb.NanosecondDuration(nanoseconds=15 * minute),
        zeroOrMaxNodeScaling=True,
        ignoreDaemonSetsUtilization=True,
        scaleDownUnneededDuration=Duration(seconds=600),
        scaleDownUnreadyDuration=Duration(seconds=1200),
        MaxNodeProvisionDuration=Duration(seconds=900),
    )


@pytest.mark.parametrize(
    "answer",
    [
        pb.NodeGroupAutoscalingOptions(scaleDownUnneededTime=pb.NanosecondDuration(nanoseconds=90_000_000_000)),
        pb.NodeGroupAutoscalingOptions(scaleDownUnneededDuration=Duration(seconds=90)),
    ],
    ids=["server up to 1.34", "server since 1.34.2"],
)
async def test_options_are_read_from_either_encoding(
    server: CountingServer, remote: RemoteProvider, answer: pb.NodeGroupAutoscalingOptions
) -> None:
    server.answers["NodeGroupGetOptions"] = pb.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=answer)
    options = await remote.options("g", _DEFAULTS)
    assert options is not None
    assert options.scale_down_unneeded_time == timedelta(seconds=90)
    assert options.scale_down_utilization_threshold == 0  # R74: a set answer says zero by saying nothing


async def test_prices_are_asked_for_with_pod_and_period_in_old_and_new_fields(
    server: CountingServer, remote: RemoteProvider
) -> None:
    server.answers["PricingNodePrice"] = pb.PricingNodePriceResponse(price=1.25)
    server.answers["PricingPodPrice"] = pb.PricingPodPriceResponse(price=0.5)
    assert await remote.node_price(_NODE, _START, _END) == 1.25
    assert await remote.pod_price(_POD, _START, _END) == 0.5
    start, end = Timestamp(seconds=int(_START.timestamp())), Timestamp(seconds=int(_END.timestamp()))
    for name in ("PricingNodePrice", "PricingPodPrice"):
        request = server.last_request(name)
        assert (request.startTime, request.endTime) == (start, end)
        assert (request.startTimestamp, request.endTimestamp) == (start, end)
    pod_request = server.last_request("PricingPodPrice")
    assert decode_pod(pod_request.pod) == decode_pod(pod_request.pod_bytes) == _POD


async def test_gpu_label_and_types_are_read(server: CountingServer, remote: RemoteProvider) -> None:
    server.answers["GPULabel"] = pb.GPULabelResponse(label="gpu")
    server.answers["GetAvailableGPUTypes"] = pb.GetAvailableGPUTypesResponse(gpuTypes={"t4": Any()})
    assert await remote.gpu_label() == "gpu"
    assert set(await remote.gpu_types()) == {"t4"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda remote: remote.increase_size("g", 1 << 31),
        lambda remote: remote.decrease_target_size("g", -(1 << 31) - 1),
        lambda remote: remote.target_size("\ud800"),
        lambda remote: remote.node_group_for_node(NodeRef(name="\ud800")),
    ],
    ids=["delta too large", "delta too small", "id is no Unicode", "node is no Unicode"],
)
async def test_what_cannot_be_put_on_the_wire_is_refused_without_a_call(
    server: CountingServer, remote: RemoteProvider, ask: Ask
) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be sent"):
        await ask(remote)
    assert not server.calls


async def test_an_unknown_group_is_not_found(server: CountingServer, remote: RemoteProvider) -> None:
    server.answers["NodeGroupTargetSize"] = StatusError(grpc.StatusCode.NOT_FOUND, "no group 'x'")
    with pytest.raises(NotFoundError, match="no group 'x'"):
        await remote.target_size("x")
