"""Every call through the service alone: right answers, bad input, bad providers. No socket."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgraft.sdk import (
    AutoscalingOptions,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.service.gate import Gate
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.kubernetes import decode_node
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.service.service_bench import Bench

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC)
READY = {"small": "memory://small/small-1"}


async def test_groups_are_listed_with_their_sizes(bench: Bench) -> None:
    answer = await bench.call("NodeGroups")
    assert isinstance(answer, pb.NodeGroupsResponse)
    assert [(g.id, g.minSize, g.maxSize) for g in answer.nodeGroups] == [("small", 0, 5), ("large", 1, 3)]
    assert all(g.debug for g in answer.nodeGroups)


async def test_a_scale_up_shows_at_once_and_its_nodes_are_known_by_id_and_by_name(bench: Bench) -> None:
    """T1, T2, R22, R27."""
    await bench.increase(2)
    assert await bench.target() == 2
    assert list(await bench.nodes()) == ["memory://small/small-1", "memory://small/small-2"]
    assert await bench.group_of("worker-7", "memory://small/small-1") == "small"
    assert await bench.group_of("small-2") == "small"


async def test_no_call_needs_a_refresh_before_it(bench: Bench) -> None:
    """R3, T9: the first calls after a restart are about nodes."""
    assert await bench.group_of("control-plane", "other://1") == ""
    assert await bench.target() == 0


async def test_a_node_that_nobody_manages_is_an_answer_and_not_an_error(bench: Bench) -> None:
    """R17, R21, T8."""
    for name in ("control-plane", "template-node-for-small-17-upcoming-0"):
        assert await bench.group_of(name) == ""


async def test_a_deletion_lowers_the_target_once_however_often_it_is_sent(bench: Bench) -> None:
    """R53, R55, R56, T6."""
    await bench.increase(3)
    await bench.delete("memory://small/small-1")
    await bench.delete("memory://small/small-1")
    assert await bench.target() == 2
    assert "memory://small/small-1" not in await bench.nodes()
    assert await bench.group_of(provider_id="memory://small/small-1") == "small"  # R24


@pytest.mark.parametrize("ids", [["other://1"], ["memory://small/small-1", "memory://large/large-1"]])
async def test_a_foreign_node_in_a_deletion_is_refused_and_nothing_is_deleted(bench: Bench, ids: list[str]) -> None:
    """R52, T6."""
    await bench.increase(1)
    await bench.increase(1, group="large")
    with pytest.raises(InvalidArgumentError, match="not in group small"):
        await bench.delete(*ids)
    assert await bench.target() == 1


async def test_ten_deletions_at_once_lower_the_target_by_exactly_ten() -> None:
    """R49, T6."""
    bench = Bench()
    bench.provider = MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="small", max_size=20)]))
    bench.service = CloudProviderService(bench.provider)
    await bench.increase(12)
    ids = list(await bench.nodes())[:10]
    await asyncio.gather(*(bench.delete(id_) for id_ in ids))
    assert await bench.target() == 2


async def test_a_stock_out_is_listed_as_creating_with_the_class_for_resources() -> None:
    """R34, R35, R39, T3."""
    bench = Bench()
    bench.provider = MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="small", stock=1)]))
    bench.service = CloudProviderService(bench.provider)
    await bench.increase(2)
    answer = await bench.call("NodeGroupNodes", pb.NodeGroupNodesRequest(id="small"))
    assert isinstance(answer, pb.NodeGroupNodesResponse)
    failed = answer.instances[1]
    assert failed.status.instanceState == pb.InstanceStatus.instanceCreating
    assert failed.status.errorInfo.instanceErrorClass == 1
    assert failed.status.errorInfo.errorCode
    await bench.delete(failed.id)
    await bench.delete(failed.id)
    assert await bench.target() == 1
    assert failed.id not in await bench.nodes()


async def test_a_decrease_gives_back_only_what_never_came_and_never_fails(bench: Bench) -> None:
    """R59-R62, T5."""
    await bench.increase(1)
    bench.provider.lose("small", 2)
    assert await bench.target() == 3
    await bench.decrease(-2)
    await bench.decrease(-1)
    assert await bench.target() == 1
    assert len(await bench.nodes()) == 1


async def test_the_template_is_sent_in_both_fields(bench: Bench) -> None:
    """Law 8."""
    answer = await bench.call("NodeGroupTemplateNodeInfo", pb.NodeGroupTemplateNodeInfoRequest(id="small"))
    assert isinstance(answer, pb.NodeGroupTemplateNodeInfoResponse)
    assert answer.nodeInfo == answer.nodeBytes
    assert str(decode_node(answer.nodeBytes).allocatable["cpu"]) == "2"


async def test_prices_of_templates_nodes_and_pods(bench: Bench) -> None:
    """R81, R82."""
    await bench.increase(1)
    for name, provider_id in (("template-node-for-small-123", ""), ("n", "memory://small/small-1")):
        node = wire.node_ref_from_pb(pb.ExternalGrpcNode(name=name, providerID=provider_id))
        answer = await bench.call("PricingNodePrice", wire.price_request_to_pb(node, START, END))
        assert isinstance(answer, pb.PricingNodePriceResponse)
        assert answer.price == 1.0
    pod = pb.PricingPodPriceRequest(pod_bytes=b"\x12\x0c\x12\x0a\x42\x08\x12\x06\x0a\x03cpu\x12\x00")
    with pytest.raises(InvalidArgumentError):
        await bench.call("PricingPodPrice", pod)  # a request of cpu without a quantity


async def test_a_period_that_ends_before_it_begins_is_refused(bench: Bench) -> None:
    node = wire.node_ref_from_pb(pb.ExternalGrpcNode(name="n"))
    with pytest.raises(InvalidArgumentError, match="before it begins"):
        await bench.call("PricingNodePrice", wire.price_request_to_pb(node, END, START))


async def test_the_absent_gpu_is_an_empty_label(bench: Bench) -> None:
    """R78."""
    bench.provider.log.fail_next("gpu_label", UnsupportedError("no GPUs"))
    bench.provider.log.fail_next("gpu_types", UnsupportedError("no GPUs"))
    assert await bench.call("GPULabel") == pb.GPULabelResponse()
    assert await bench.call("GetAvailableGPUTypes") == pb.GetAvailableGPUTypesResponse()


async def test_cleanup_and_refresh_may_come_twice(bench: Bench) -> None:
    """R5."""
    for rpc in ("Cleanup", "Cleanup", "Refresh", "Refresh"):
        await bench.call(rpc)


# -- bad input ---------------------------------------------------------------------------------------------------------

NEEDS_INPUT = sorted(
    set(RPCS) - {"NodeGroups", "GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh"},
)


@pytest.mark.parametrize("rpc", NEEDS_INPUT)
async def test_an_empty_message_is_refused_and_changes_nothing(bench: Bench, rpc: str) -> None:
    with pytest.raises(InvalidArgumentError):
        await bench.call(rpc)
    assert not [call for call in bench.provider.log.calls if call.method not in ("node_groups", "target_size")]


GROUP_RPCS = [rpc for rpc in RPCS if "id" in RPCS[rpc].request.DESCRIPTOR.fields_by_name]


@pytest.mark.parametrize("rpc", GROUP_RPCS)
async def test_an_unknown_group_is_not_found(bench: Bench, rpc: str) -> None:
    """T8."""
    with pytest.raises(NotFoundError, match="'nothing'"):
        await bench.call(rpc, RPCS[rpc].request(id="nothing"))


@pytest.mark.parametrize("group", ["a\nb", "\x00", "\x1b[31m", "x" * 2000])
async def test_an_id_that_no_group_can_have_is_refused_and_shown_escaped(bench: Bench, group: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.target(group)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


async def test_a_node_with_a_name_of_megabytes_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidArgumentError, match="longer than"):
        await bench.group_of("n" * 2_000_000)


@pytest.mark.parametrize("delta", [0, -1, -(2**31), 6, 2**31 - 1])
async def test_an_increase_that_is_none_or_goes_beyond_the_maximum_changes_nothing(bench: Bench, delta: int) -> None:
    """R43."""
    with pytest.raises(InvalidArgumentError):
        await bench.increase(delta)
    assert await bench.target() == 0
    assert bench.provider.log.count("increase_size") == 0


@pytest.mark.parametrize("delta", [0, 1, 2**31 - 1])
async def test_a_decrease_that_is_none_is_refused(bench: Bench, delta: int) -> None:
    """R59."""
    with pytest.raises(InvalidArgumentError):
        await bench.decrease(delta)


async def test_ten_thousand_unknown_nodes_are_ten_thousand_quick_answers(bench: Bench) -> None:
    for number in range(10_000):
        assert await bench.group_of(f"stranger-{number}", f"other://{number}") == ""


# -- changes -----------------------------------------------------------------------------------------------------------


async def test_changes_of_one_group_wait_for_each_other_and_those_of_another_do_not(bench: Bench) -> None:
    """R46, R89."""
    hold = bench.provider.log.hold_next("increase_size")
    first = asyncio.create_task(bench.increase(1))
    await until(lambda: bench.provider.log.count("increase_size") == 1)
    second = asyncio.create_task(bench.increase(2))
    await bench.increase(1, group="large")
    assert bench.provider.log.count("increase_size") == 2  # the first small one and the large one
    assert not second.done()
    hold.set()
    await asyncio.gather(first, second)
    assert await bench.target() == 3


async def test_a_change_that_has_begun_is_finished_although_its_caller_gave_up(bench: Bench) -> None:
    """T7: done once or not done."""
    hold = bench.provider.log.hold_next("increase_size")
    caller = asyncio.create_task(bench.increase(2))
    await until(lambda: bench.provider.log.count("increase_size") == 1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    hold.set()
    await bench.service.close(5)
    assert await bench.target() == 2
    late = bench.service.metrics.registry.get_sample_value(
        "cloudgraft_late_mutations_total", {"rpc": "NodeGroupIncreaseSize"}
    )
    assert late == 1


async def test_a_change_whose_caller_gave_up_while_it_waited_is_never_made(bench: Bench) -> None:
    """T7."""
    hold = bench.provider.log.hold_next("increase_size")
    first = asyncio.create_task(bench.increase(1))
    await until(lambda: bench.provider.log.count("increase_size") == 1)
    with pytest.raises(DeadlineError):
        await bench.call(
            "NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id="small", delta=2), Call(seconds_left=0.05)
        )
    hold.set()
    await first
    await bench.service.close(5)
    assert await bench.target() == 1


async def test_a_failed_increase_leaves_the_target_alone(bench: Bench) -> None:
    """R45."""
    bench.provider.log.fail_next("increase_size", UnavailableError("the cloud is down"))
    with pytest.raises(UnavailableError):
        await bench.increase(1)
    assert await bench.target() == 0


# -- options -----------------------------------------------------------------------------------------------------------

DEFAULTS = AutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=0.5,
    scale_down_unneeded_time=timedelta(minutes=10),
    scale_down_unready_time=timedelta(minutes=20),
    max_node_provision_time=timedelta(minutes=15),
)


async def options(
    bench: Bench, defaults: pb.NodeGroupAutoscalingOptions | None
) -> pb.NodeGroupAutoscalingOptions | None:
    request = pb.NodeGroupAutoscalingOptionsRequest(id="small", defaults=defaults)
    answer = await bench.call("NodeGroupGetOptions", request)
    assert isinstance(answer, pb.NodeGroupAutoscalingOptionsResponse)
    return answer.nodeGroupAutoscalingOptions if answer.HasField("nodeGroupAutoscalingOptions") else None


async def test_no_override_is_an_unset_answer(bench: Bench) -> None:
    """R73."""
    assert await options(bench, wire.options_to_pb(DEFAULTS)) is None


async def test_an_override_is_completed_from_the_clients_defaults_and_keeps_unknown_fields(bench: Bench) -> None:
    """R74: an incomplete answer would set the rest to zero."""
    unknown = bytes([0xA0, 0x06, 0x07])  # field 100, varint 7: of a release yet to come
    defaults = pb.NodeGroupAutoscalingOptions.FromString(wire.options_to_pb(DEFAULTS).SerializeToString() + unknown)
    bench.provider.log.answer_next("options", AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=3)))
    answer = await options(bench, defaults)
    assert answer is not None
    assert answer.scaleDownUnneededTime.nanoseconds == 180 * 10**9
    assert answer.scaleDownUnneededDuration.seconds == 180
    assert answer.MaxNodeProvisionDuration.seconds == 900
    assert answer.MaxNodeProvisionTime.nanoseconds == 900 * 10**9
    assert answer.scaleDownUtilizationThreshold == 0.5
    assert unknown in answer.SerializeToString()


async def test_an_override_that_changes_nothing_is_left_unset(bench: Bench) -> None:
    bench.provider.log.answer_next("options", replace(DEFAULTS, source=b""))
    assert await options(bench, wire.options_to_pb(DEFAULTS)) is None


async def test_an_override_without_any_defaults_is_completed_from_the_autoscalers_flag_defaults(bench: Bench) -> None:
    """R75: an absent duration crashes clients up to 1.34."""
    bench.provider.log.answer_next("options", AutoscalingOptions(scale_down_utilization_threshold=0.9))
    answer = await options(bench, None)
    assert answer is not None
    assert answer.scaleDownUtilizationThreshold == 0.9
    assert answer.scaleDownUnneededDuration.seconds == 600
    assert answer.scaleDownUnreadyTime.nanoseconds == 1200 * 10**9


# -- metrics and logs --------------------------------------------------------------------------------------------------


async def test_calls_are_counted_by_code(bench: Bench) -> None:
    await bench.target()
    with pytest.raises(CloudgraftError):
        await bench.target("nothing")
    value = bench.service.metrics.registry.get_sample_value
    assert value("cloudgraft_rpcs_total", {"rpc": "NodeGroupTargetSize", "code": "OK"}) == 1
    assert value("cloudgraft_rpcs_total", {"rpc": "NodeGroupTargetSize", "code": "NOT_FOUND"}) == 1
    assert value("cloudgraft_rpc_duration_seconds_count", {"rpc": "NodeGroupTargetSize"}) == 2


async def test_failures_are_logged_at_level_1_and_every_call_at_level_5(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "cloudgraft"):
        await bench.target()
        assert not caplog.records
        with pytest.raises(NotFoundError):
            await bench.target("nothing")
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "cloudgraft"):
        await bench.target()
    details = caplog.records[0].__dict__
    assert (details["rpc"], details["group"], details["code"]) == ("NodeGroupTargetSize", "small", "OK")


async def test_one_reason_for_all_failures_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk fails every call of every group."""

    def refuse() -> None:
        raise UnavailableError("the disk is full")

    bench = Bench()
    service = CloudProviderService(bench.provider, gate=Gate(refuse))
    for group in ("small", "large", "small"):
        for rpc, request in (
            ("NodeGroupTargetSize", pb.NodeGroupTargetSizeRequest(id=group)),
            ("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group)),
        ):
            with pytest.raises(UnavailableError):
                await service.handle(rpc, request, Call())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_call_is_held_back_while_this_replica_is_about_to_lead() -> None:
    leads, given = False, list[float]()

    def gate() -> None:
        if not leads:
            raise UnavailableError("not the leader")

    async def hold(seconds: float) -> None:
        nonlocal leads
        given.append(seconds)
        leads = len(given) > 1

    service = CloudProviderService(Bench().provider, gate=Gate(gate, wait=hold))
    request = pb.NodeGroupTargetSizeRequest(id="small")
    with pytest.raises(UnavailableError):
        await service.handle("NodeGroupTargetSize", request, Call(seconds_left=5.0))
    await service.handle("NodeGroupTargetSize", request, Call(seconds_left=5.0))
    await service.handle("NodeGroupTargetSize", request, Call(seconds_left=5.0))
    assert given == [4.0, 4.0]  # a second is left for the answer


async def test_bytes_that_are_no_message_are_counted_and_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid NodeGroupTargetSizeRequest"):
        await bench.service.handle_bytes("NodeGroupTargetSize", b"\xff", Call(peer="somebody"))
    labels = {"rpc": "NodeGroupTargetSize", "code": "INVALID_ARGUMENT"}
    assert bench.service.metrics.registry.get_sample_value("cloudgraft_rpcs_total", labels) == 1
    assert caplog.records[0].__dict__["peer"] == "somebody"
