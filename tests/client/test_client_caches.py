"""Each documented cache of the autoscaler's client, shown by counting the calls that reach a real server (1.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc
import pytest
from google.protobuf.any_pb2 import Any

from cloudgraft.client import CloudProvider, NodeGroup
from cloudgraft.sdk import Instance, InstanceError, InstanceState, NodeRef, NodeTemplate, Quantity
from cloudgraft.sdk.errors import CloudgraftError, InternalError, UnavailableError, UnsupportedError
from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.wire.externalgrpc import template_to_pb
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import CountingServer, StatusError

_DOWN = StatusError(grpc.StatusCode.UNAVAILABLE, "the cloud is away")
_NODE = NodeRef(name="n1", provider_id="sim://n1")
_TEMPLATE = NodeTemplate(labels={"pool": "a"}, allocatable={"cpu": Quantity("4")})


def groups(*ids: str, max_size: int = 5) -> pb.NodeGroupsResponse:
    return pb.NodeGroupsResponse(
        nodeGroups=[pb.NodeGroup(id=id_, minSize=1, maxSize=max_size, debug="d") for id_ in ids]
    )


def group_for_node(id_: str) -> pb.NodeGroupForNodeResponse:
    return pb.NodeGroupForNodeResponse(nodeGroup=pb.NodeGroup(id=id_, minSize=1, maxSize=5, debug="d"))


async def test_node_groups_are_cached_until_refresh(server: CountingServer, provider: CloudProvider) -> None:
    server.answers["NodeGroups"] = groups("a", "b")
    first = await provider.node_groups()
    second = await provider.node_groups()
    assert [group.id for group in first] == ["a", "b"]
    assert first == second  # the very same objects, as in Go
    assert server.calls["NodeGroups"] == 1
    server.answers["NodeGroups"] = groups("a")
    await provider.refresh()
    assert [group.id for group in await provider.node_groups()] == ["a"]
    assert server.calls["NodeGroups"] == 2


async def test_an_empty_list_of_groups_is_cached_too(server: CountingServer, provider: CloudProvider) -> None:
    assert await provider.node_groups() == []
    assert await provider.node_groups() == []
    assert server.calls["NodeGroups"] == 1


async def test_changing_the_returned_list_does_not_change_the_cache(
    server: CountingServer, provider: CloudProvider
) -> None:
    server.answers["NodeGroups"] = groups("a")
    (await provider.node_groups()).clear()
    assert len(await provider.node_groups()) == 1


async def test_an_error_of_node_groups_becomes_an_empty_list_that_is_not_cached(
    server: CountingServer, provider: CloudProvider
) -> None:
    """R12."""
    server.answers["NodeGroups"] = _DOWN
    assert await provider.node_groups() == []
    server.answers["NodeGroups"] = groups("a")
    assert [group.id for group in await provider.node_groups()] == ["a"]
    assert server.calls["NodeGroups"] == 2


async def test_the_group_of_a_node_is_cached_until_refresh(server: CountingServer, provider: CloudProvider) -> None:
    server.answers["NodeGroupForNode"] = group_for_node("a")
    first = await provider.node_group_for_node(_NODE)
    assert first is await provider.node_group_for_node(_NODE)
    assert first is not None
    assert (first.id, first.min_size, first.max_size, first.debug) == ("a", 1, 5, "d")
    assert server.calls["NodeGroupForNode"] == 1
    await provider.refresh()
    await provider.node_group_for_node(_NODE)
    assert server.calls["NodeGroupForNode"] == 2


async def test_nodes_are_cached_by_name_and_provider_id_together(
    server: CountingServer, provider: CloudProvider
) -> None:
    """R22: the provider id is empty on a fresh node, and the answer for it must not stick to the same name."""
    server.answers["NodeGroupForNode"] = group_for_node("a")
    await provider.node_group_for_node(NodeRef(name="n1"))
    await provider.node_group_for_node(NodeRef(name="n1", provider_id="sim://n1"))
    await provider.node_group_for_node(NodeRef(name="n1", provider_id="sim://n1", labels={"changed": "yes"}))
    assert server.calls["NodeGroupForNode"] == 2


@pytest.mark.parametrize("answer", [pb.NodeGroupForNodeResponse(), group_for_node("")], ids=["no group", "empty id"])
async def test_a_node_without_a_group_is_not_cached(
    server: CountingServer, provider: CloudProvider, answer: pb.NodeGroupForNodeResponse
) -> None:
    """R17, B7."""
    server.answers["NodeGroupForNode"] = answer
    assert await provider.node_group_for_node(_NODE) is None
    assert await provider.node_group_for_node(_NODE) is None
    assert server.calls["NodeGroupForNode"] == 2


async def test_an_error_for_a_node_is_raised_and_not_cached(server: CountingServer, provider: CloudProvider) -> None:
    server.answers["NodeGroupForNode"] = _DOWN
    with pytest.raises(UnavailableError, match="the cloud is away"):
        await provider.node_group_for_node(_NODE)
    server.answers["NodeGroupForNode"] = group_for_node("a")
    assert await provider.node_group_for_node(_NODE) is not None


async def test_refresh_forgets_before_it_calls_so_that_a_failed_one_forgets_too(
    server: CountingServer, provider: CloudProvider
) -> None:
    server.answers.update(NodeGroups=groups("a"), NodeGroupForNode=group_for_node("a"), Refresh=_DOWN)
    await provider.node_groups()
    await provider.node_group_for_node(_NODE)
    with pytest.raises(UnavailableError):
        await provider.refresh()
    await provider.node_groups()
    await provider.node_group_for_node(_NODE)
    assert server.calls == {"NodeGroups": 2, "NodeGroupForNode": 2, "Refresh": 1}


async def test_the_gpu_label_and_types_are_cached_for_ever(server: CountingServer, provider: CloudProvider) -> None:
    server.answers["GPULabel"] = pb.GPULabelResponse(label="gpu")
    server.answers["GetAvailableGPUTypes"] = pb.GetAvailableGPUTypesResponse(gpuTypes={"t4": Any(), "a100": Any()})
    for _ in range(3):
        assert await provider.gpu_label() == "gpu"
        assert await provider.get_available_gpu_types() == frozenset({"t4", "a100"})
        await provider.refresh()
    assert server.calls == {"GPULabel": 1, "GetAvailableGPUTypes": 1, "Refresh": 3}


async def test_an_empty_gpu_label_and_no_types_are_cached_too(server: CountingServer, provider: CloudProvider) -> None:
    """R78: an empty label is an answer."""
    for _ in range(2):
        assert await provider.gpu_label() == ""
        assert await provider.get_available_gpu_types() == frozenset()
    assert server.calls == {"GPULabel": 1, "GetAvailableGPUTypes": 1}


@pytest.mark.parametrize("error", [_DOWN, StatusError(grpc.StatusCode.UNIMPLEMENTED, "no GPUs here")])
async def test_an_error_of_the_gpu_calls_is_an_empty_answer_that_is_not_cached(
    server: CountingServer, provider: CloudProvider, error: StatusError
) -> None:
    """R78."""
    server.answers.update(GPULabel=error, GetAvailableGPUTypes=error)
    for _ in range(2):
        assert await provider.gpu_label() == ""
        assert await provider.get_available_gpu_types() is None
    assert server.calls == {"GPULabel": 2, "GetAvailableGPUTypes": 2}


async def test_min_max_and_debug_are_frozen_for_the_life_of_the_group_object(
    server: CountingServer, provider: CloudProvider
) -> None:
    """R4."""
    server.answers["NodeGroups"] = groups("a", max_size=5)
    (old,) = await provider.node_groups()
    server.answers["NodeGroups"] = groups("a", max_size=9)
    assert (await provider.node_groups())[0].max_size == 5
    await provider.refresh()
    (new,) = await provider.node_groups()
    assert (old.min_size, old.max_size, old.debug) == (1, 5, "d")
    assert new.max_size == 9


async def test_the_template_is_cached_at_its_first_answer_for_the_life_of_the_group_object(
    server: CountingServer, provider: CloudProvider
) -> None:
    server.answers.update(NodeGroups=groups("a"), NodeGroupTemplateNodeInfo=template_to_pb(_TEMPLATE))
    (group,) = await provider.node_groups()
    assert await group.template_node_info() == _TEMPLATE
    await provider.refresh()
    assert await group.template_node_info() == _TEMPLATE
    assert server.calls["NodeGroupTemplateNodeInfo"] == 1
    (new,) = await provider.node_groups()
    await new.template_node_info()
    assert server.calls["NodeGroupTemplateNodeInfo"] == 2


async def test_each_nodes_group_object_has_a_template_of_its_own(
    server: CountingServer, provider: CloudProvider
) -> None:
    """The real client asks once per node, not once per group, for this reason (B6 has the same cause)."""
    server.answers.update(NodeGroupForNode=group_for_node("a"), NodeGroupTemplateNodeInfo=template_to_pb(_TEMPLATE))
    for name in ("n1", "n2", "n1"):
        group = await provider.node_group_for_node(NodeRef(name=name))
        assert group is not None
        await group.template_node_info()
    assert server.calls["NodeGroupTemplateNodeInfo"] == 2


async def test_a_template_without_a_node_is_none_and_cached(server: CountingServer, provider: CloudProvider) -> None:
    """R65, B5."""
    server.answers["NodeGroups"] = groups("a")
    (group,) = await provider.node_groups()
    assert await group.template_node_info() is None
    assert await group.template_node_info() is None
    assert server.calls["NodeGroupTemplateNodeInfo"] == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (StatusError(grpc.StatusCode.UNIMPLEMENTED, "no templates"), UnsupportedError),
        (_DOWN, UnavailableError),
        (pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=b"\xff"), InternalError),
    ],
    ids=["unsupported", "down", "garbage"],
)
async def test_an_error_of_the_template_is_not_cached(
    server: CountingServer,
    provider: CloudProvider,
    answer: StatusError | pb.NodeGroupTemplateNodeInfoResponse,
    error: type[CloudgraftError],
) -> None:
    server.answers.update(NodeGroups=groups("a"), NodeGroupTemplateNodeInfo=answer)
    (group,) = await provider.node_groups()
    for _ in range(2):
        with pytest.raises(error):
            await group.template_node_info()
    assert server.calls["NodeGroupTemplateNodeInfo"] == 2


async def test_target_size_instances_options_and_prices_are_never_cached(
    server: CountingServer, provider: CloudProvider
) -> None:
    """B8."""
    server.answers["NodeGroups"] = groups("a")
    (group,) = await provider.node_groups()
    reads: list[Callable[[], Awaitable[object]]] = [
        group.target_size,
        group.nodes,
        lambda: group.get_options(AutoscalingOptions()),
    ]
    for _ in range(3):
        for read in reads:
            await read()
    assert server.calls == {
        "NodeGroups": 1,
        "NodeGroupTargetSize": 3,
        "NodeGroupNodes": 3,
        "NodeGroupGetOptions": 3,
    }


async def test_callers_at_the_same_time_share_one_call(server: CountingServer, provider: CloudProvider) -> None:
    """One lock, held during the call, as Go's mutex is (1.4)."""
    server.answers["NodeGroupForNode"] = group_for_node("a")
    found = await asyncio.gather(*(provider.node_group_for_node(_NODE) for _ in range(20)))
    assert len({id(group) for group in found}) == 1
    assert server.calls["NodeGroupForNode"] == 1


async def test_a_slow_node_group_for_node_makes_node_groups_wait(
    server: CountingServer, provider: CloudProvider
) -> None:
    server.hang.add("NodeGroupForNode")
    slow = asyncio.create_task(provider.node_group_for_node(_NODE))
    await asyncio.to_thread(server.held.acquire)
    waiting = asyncio.create_task(provider.node_groups())
    for _ in range(10):
        await provider.cleanup()  # not under the lock: each one is a way to the server and back
    assert server.calls == {"NodeGroupForNode": 1, "Cleanup": 10}
    server.release.set()
    await slow
    await waiting
    assert server.calls["NodeGroups"] == 1


async def test_a_cancelled_caller_leaves_the_lock_free_for_the_next(
    server: CountingServer, provider: CloudProvider
) -> None:
    server.hang.add("NodeGroups")
    slow = asyncio.create_task(provider.node_groups())
    await asyncio.to_thread(server.held.acquire)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    server.release.set()
    server.answers["NodeGroups"] = groups("a")
    assert len(await provider.node_groups()) == 1


async def test_an_error_on_an_instance_is_seen_only_with_a_state(
    server: CountingServer, provider: CloudProvider
) -> None:
    """R34."""
    info = pb.InstanceErrorInfo(errorCode="stockout", errorMessage="none left", instanceErrorClass=1)
    server.answers["NodeGroups"] = groups("a")
    server.answers["NodeGroupNodes"] = pb.NodeGroupNodesResponse(
        instances=[
            pb.Instance(
                id="1", status=pb.InstanceStatus(instanceState=pb.InstanceStatus.instanceCreating, errorInfo=info)
            ),
            pb.Instance(id="2", status=pb.InstanceStatus(errorInfo=info)),
            pb.Instance(id="3"),
        ]
    )
    (group,) = await provider.node_groups()
    assert await group.nodes() == [
        Instance(
            id="1",
            state=InstanceState.CREATING,
            error=InstanceError(code="stockout", message="none left", error_class=1),
        ),
        Instance(id="2", state=InstanceState.UNSPECIFIED),
        Instance(id="3", state=InstanceState.UNSPECIFIED),
    ]


async def test_every_call_and_every_cache_hit_is_logged_at_level_5(
    server: CountingServer, provider: CloudProvider, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers.update(
        NodeGroups=groups("a"),
        NodeGroupForNode=group_for_node("a"),
        NodeGroupTemplateNodeInfo=template_to_pb(_TEMPLATE),
    )

    async def ask() -> NodeGroup:
        (group,) = await provider.node_groups()
        await provider.node_group_for_node(_NODE)
        await provider.gpu_label()
        await provider.get_available_gpu_types()
        await group.template_node_info()
        return group

    with caplog.at_level(logging.DEBUG, "cloudgraft.client"):
        await ask()
        group = await ask()
        await group.target_size()
        await provider.refresh()
    calls = ["NodeGroups", "NodeGroupForNode", "GPULabel", "GetAvailableGPUTypes", "NodeGroupTemplateNodeInfo"]
    assert caplog.messages == [
        *(f"performing gRPC call {name}" for name in calls),
        *(f"returning cached {name}" for name in calls),
        "performing gRPC call NodeGroupTargetSize",
        "performing gRPC call Refresh",
    ]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    about = {record.getMessage(): record.__dict__ for record in caplog.records}
    assert about["performing gRPC call NodeGroupTargetSize"]["node_group"] == "a"
    assert about["performing gRPC call NodeGroupForNode"]["node"] == "n1"
    assert about["returning cached NodeGroupForNode"]["provider_id"] == "sim://n1"


async def test_errors_and_nothing_else_are_logged_at_level_1(
    server: CountingServer, provider: CloudProvider, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers.update(NodeGroups=_DOWN, GPULabel=_DOWN, NodeGroupForNode=_DOWN)
    with caplog.at_level(logging.WARNING, "cloudgraft.client"):
        await provider.node_groups()
        await provider.gpu_label()
        with pytest.raises(UnavailableError):
            await provider.node_group_for_node(_NODE)
        await provider.refresh()
    assert caplog.messages == [
        "error on gRPC call NodeGroups: UNAVAILABLE: the cloud is away",
        "error on gRPC call GPULabel: UNAVAILABLE: the cloud is away",
        "error on gRPC call NodeGroupForNode: UNAVAILABLE: the cloud is away",
    ]
    assert caplog.records[2].__dict__["node"] == "n1"
    assert caplog.records[2].__dict__["code"] == "UNAVAILABLE"


async def test_unimplemented_is_an_answer_and_no_error_in_the_log_for_the_optional_calls(
    server: CountingServer, provider: CloudProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """R8: only these four; for any other call code 12 is an error like the rest."""
    unimplemented = StatusError(grpc.StatusCode.UNIMPLEMENTED, "not here")
    server.answers.update(NodeGroups=groups("a"), NodeGroupTemplateNodeInfo=unimplemented)
    server.answers.update(NodeGroupGetOptions=unimplemented, NodeGroupTargetSize=unimplemented)
    (group,) = await provider.node_groups()
    with caplog.at_level(logging.WARNING, "cloudgraft.client"):
        with pytest.raises(UnsupportedError):
            await group.template_node_info()
        with pytest.raises(UnsupportedError):
            await group.get_options(AutoscalingOptions())
        assert caplog.messages == []
        with pytest.raises(UnsupportedError):
            await group.target_size()
    assert caplog.messages == ["error on gRPC call NodeGroupTargetSize: UNIMPLEMENTED: not here"]
