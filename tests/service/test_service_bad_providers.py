"""Providers with bugs: the service answers with an error, and nothing wrong reaches the autoscaler."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cloudgraft.sdk import (
    AutoscalingOptions,
    CloudgraftError,
    DeadlineError,
    Instance,
    InstanceError,
    InstanceState,
    InternalError,
    NodeGroup,
    NodeTemplate,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.errors import StatusCode
from cloudgraft.service import Call
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.service.service_bench import Bench


async def test_an_unexpected_exception_shows_an_id_and_nothing_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.provider.log.fail_next("target_size", RuntimeError("password=hunter2"))
    with pytest.raises(InternalError) as caught:
        await bench.target()
    assert "hunter2" not in caught.value.message
    incident = caught.value.message.partition("(id ")[2][:8]
    logged = [record for record in caplog.records if getattr(record, "id", "") == incident]
    assert logged
    assert logged[0].exc_info
    assert await bench.target() == 0


@pytest.mark.parametrize("bomb", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("method", ["target_size", "increase_size"])
async def test_nothing_that_a_provider_raises_ends_more_than_its_call(
    bench: Bench, bomb: BaseException, method: str
) -> None:
    bench.provider.log.fail_next(method, bomb)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InternalError, match="internal error"):
        await bench.increase(1)
    await bench.increase(1)
    assert await bench.target() == 1


async def test_a_traceback_is_logged_once_and_not_for_each_of_thousands_of_calls(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        bench.provider.log.fail_next("target_size", ValueError("again"))
        with pytest.raises(InternalError):
            await bench.target()
    told = [record for record in caplog.records if "unexpected exception" in record.getMessage()]
    assert len(told) == 50
    assert sum(bool(record.exc_info) for record in told) == 1


@pytest.mark.parametrize("error", [CloudgraftError("bare"), UnavailableError(ValueError("not a text"))])  # type: ignore[arg-type]
async def test_an_error_that_was_made_carelessly_is_still_an_answer(bench: Bench, error: CloudgraftError) -> None:
    bench.provider.log.fail_next("target_size", error)
    with pytest.raises(CloudgraftError) as caught:
        await bench.target()
    assert caught.value.status in (StatusCode.INTERNAL, StatusCode.UNAVAILABLE)
    assert caught.value.message


async def test_the_same_instances_are_converted_once(bench: Bench) -> None:
    many = tuple(Instance(id=f"x://{number}") for number in range(600))
    for _ in range(2):
        bench.provider.log.answer_next("instances", many)
    first = await bench.call("NodeGroupNodes", pb.NodeGroupNodesRequest(id="small"))
    second = await bench.call("NodeGroupNodes", pb.NodeGroupNodesRequest(id="small"))
    assert first is second
    assert isinstance(first, pb.NodeGroupNodesResponse)
    assert [instance.id for instance in first.instances] == [instance.id for instance in many]
    await bench.increase(1)
    assert list(await bench.nodes()) == ["memory://small/small-1"]


async def test_a_provider_that_hangs_past_the_deadline_fails_that_call_only() -> None:
    """R6, R7."""
    bench = Bench(deadline=0.05)
    event = bench.provider.log.hold_next("target_size")
    with pytest.raises(DeadlineError, match="within"):
        await bench.target()
    assert await bench.target() == 0
    event.set()


async def test_the_clients_deadline_counts_when_it_is_shorter(bench: Bench) -> None:
    event = bench.provider.log.hold_next("instances")
    with pytest.raises(DeadlineError):
        await bench.call("NodeGroupNodes", pb.NodeGroupNodesRequest(id="small"), Call(seconds_left=0.05))
    event.set()


NONSENSE: list[tuple[str, str, object]] = [
    ("NodeGroups", "node_groups", None),
    ("NodeGroups", "node_groups", ["small"]),
    ("NodeGroups", "node_groups", [NodeGroup(id="a", min_size=0, max_size=1)] * 2),
    ("NodeGroups", "node_groups", [NodeGroup(id="a", min_size=3, max_size=1)]),
    ("NodeGroups", "node_groups", [NodeGroup(id="", min_size=0, max_size=1)]),
    ("NodeGroups", "node_groups", [NodeGroup(id="a\n", min_size=0, max_size=1)]),
    ("NodeGroups", "node_groups", [NodeGroup(id="a", min_size=-1, max_size=1)]),
    ("NodeGroups", "node_groups", [NodeGroup(id="a", min_size=0, max_size=2**31)]),
    ("NodeGroupForNode", "node_group_for_node", "small"),
    ("NodeGroupTargetSize", "target_size", None),
    ("NodeGroupTargetSize", "target_size", -1),
    ("NodeGroupTargetSize", "target_size", 1.5),
    ("NodeGroupTargetSize", "target_size", True),
    ("NodeGroupNodes", "instances", None),
    ("NodeGroupNodes", "instances", [None]),
    ("NodeGroupNodes", "instances", [Instance(id="")]),
    ("NodeGroupNodes", "instances", [Instance(id="a"), Instance(id="a")]),
    (
        "NodeGroupNodes",
        "instances",
        [Instance(id="a", state=InstanceState.CREATING, error=InstanceError(code="", message="m"))],
    ),
    ("NodeGroupTemplateNodeInfo", "template", None),
    ("NodeGroupTemplateNodeInfo", "template", NodeTemplate()),
    ("NodeGroupGetOptions", "options", "5m"),
    ("NodeGroupGetOptions", "options", AutoscalingOptions(scale_down_unneeded_time=timedelta(seconds=-1))),
    ("PricingNodePrice", "node_price", None),
    ("PricingNodePrice", "node_price", float("nan")),
    ("PricingNodePrice", "node_price", -1.0),
    ("GPULabel", "gpu_label", None),
    ("GetAvailableGPUTypes", "gpu_types", "nvidia"),
]


@pytest.mark.parametrize(("rpc", "method", "answer"), NONSENSE)
async def test_nonsense_from_a_provider_is_named_and_stays_in_that_call(
    bench: Bench, rpc: str, method: str, answer: object
) -> None:
    await bench.call("NodeGroups")
    request = RPCS[rpc].request()
    if "id" in request.DESCRIPTOR.fields_by_name:
        request = RPCS[rpc].request(id="small")
    if "node" in request.DESCRIPTOR.fields_by_name:
        request = RPCS[rpc].request(node=pb.ExternalGrpcNode(name="n"))
    bench.provider.log.answer_next(method, answer)
    with pytest.raises(InternalError, match=rf"the provider's {method}\(\) answered with"):
        await bench.call(rpc, request)
    assert await bench.target() == 0


async def test_a_node_of_a_group_that_is_not_listed_is_left_alone(bench: Bench) -> None:
    """R18: the autoscaler would crash on it."""
    bench.provider.log.answer_next("node_group_for_node", NodeGroup(id="ghost", min_size=0, max_size=1))
    assert await bench.group_of("n") == ""


async def test_more_instances_than_the_client_can_read_is_a_clear_error(bench: Bench) -> None:
    """R42."""
    many = [Instance(id=f"{number:0100}") for number in range(50_000)]
    bench.provider.log.answer_next("instances", many)
    with pytest.raises(InternalError, match="split it into several groups"):
        await bench.nodes()


async def test_a_provider_without_capabilities_says_unsupported() -> None:
    """R8: code 12 for template, options and prices."""
    bench = Bench()
    for rpc, method in (("NodeGroupTemplateNodeInfo", "template"), ("NodeGroupGetOptions", "options")):
        bench.provider.log.fail_next(method, UnsupportedError("not here"))
        with pytest.raises(UnsupportedError):
            await bench.call(rpc, RPCS[rpc].request(id="small"))
