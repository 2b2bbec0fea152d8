"""The client against cloudgraft's own server, with the reference provider behind it, over mTLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgraft.client import CloudConfig, CloudProvider, RemoteProvider, SyncCloudProvider
from cloudgraft.sdk import (
    AutoscalingOptions,
    Container,
    InstanceState,
    NodeGroup,
    NodeRef,
    Pod,
    Quantity,
    RateLimitedError,
)
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, Served, serving

_START = datetime(2026, 1, 1, tzinfo=UTC)
_HOUR_LATER = _START + timedelta(hours=1)
_DEFAULTS = AutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=0.5,
    scale_down_unneeded_time=timedelta(minutes=10),
    scale_down_unready_time=timedelta(minutes=20),
    max_node_provision_time=timedelta(minutes=15),
)


@pytest.fixture
def memory() -> MemoryProvider:
    small = MemoryGroup(
        id="small",
        min_size=1,
        hourly_price=0.4,
        labels={"pool": "small"},
        options=AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=2)),
    )
    return MemoryProvider(MemoryOptions(groups=[small, MemoryGroup(id="large", max_size=2)]))


@pytest.fixture
async def served(memory: MemoryProvider, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(memory, mtls_in=tmp_path) as running:
        yield running


async def test_all_15_calls_work_over_mtls(memory: MemoryProvider, served: Served) -> None:
    async with CloudProvider.connect(CloudConfig.parse(served.cloud_config)) as provider:
        await provider.refresh()
        small, large = await provider.node_groups()
        assert (small.id, small.min_size, small.max_size, large.max_size) == ("small", 1, 10, 2)
        await small.increase_size(2)
        assert await small.target_size() == 2
        first, second = await small.nodes()
        assert first.state is second.state is InstanceState.RUNNING
        node = NodeRef(name="small-1", provider_id=first.id)
        found = await provider.node_group_for_node(node)
        assert found is not None
        assert found.id == "small"
        assert await provider.node_group_for_node(NodeRef(name="control-plane")) is None
        await small.delete_nodes([node])
        memory.lose("small")
        await small.decrease_target_size(-1)
        assert await small.target_size() == 1
        template = await small.template_node_info()
        assert template is not None
        assert template.labels["pool"] == "small"
        options = await small.get_options(_DEFAULTS)
        assert options is not None
        assert options.scale_down_unneeded_time == timedelta(minutes=2)
        assert options.max_node_provision_time == timedelta(minutes=15)
        assert await large.get_options(_DEFAULTS) is None
        prices = provider.pricing()
        assert await prices.node_price(node, _START, _HOUR_LATER) == pytest.approx(0.4)
        pod = Pod(name="p", containers=[Container(name="c", requests={"cpu": Quantity("2")})])
        assert await prices.pod_price(pod, _START, _HOUR_LATER) == pytest.approx(0.2)
        assert (await provider.gpu_label(), await provider.get_available_gpu_types()) == ("", frozenset())
        await provider.cleanup()


async def test_errors_keep_their_class_message_and_time_to_wait(memory: MemoryProvider, served: Served) -> None:
    remote = RemoteProvider.connect(CloudConfig.parse(served.cloud_config))
    with pytest.raises(NotFoundError):
        await remote.target_size("no-such-group")
    with pytest.raises(InvalidArgumentError):
        await remote.increase_size("small", -1)
    memory.log.fail_next("increase_size", RateLimitedError("slow down", retry_after=7.5))
    with pytest.raises(RateLimitedError, match="slow down") as limited:
        await remote.increase_size("small", 1)
    assert limited.value.retry_after == 7.5
    await remote.close()


async def test_a_remote_provider_can_be_served_again_as_a_proxy(memory: MemoryProvider, served: Served) -> None:
    """`{type: externalgrpc}`: a cloudgraft in front of any other server."""
    behind = RemoteProvider.connect(CloudConfig.parse(served.cloud_config))
    async with serving(behind) as front, CloudProvider.connect(CloudConfig.parse(front.cloud_config)) as provider:
        (small, _) = await provider.node_groups()
        await small.increase_size(1)
        assert await small.target_size() == 1
        assert NodeGroup(id="small", min_size=1, max_size=10) == NodeGroup(
            id=small.id, min_size=small.min_size, max_size=small.max_size
        )
        options = await small.get_options(_DEFAULTS)
        assert options is not None
        assert options.scale_down_unneeded_time == timedelta(minutes=2)
    assert memory.log.count("increase_size") == 1


async def test_the_blocking_client_works_over_mtls_beside_the_servers_loop(
    memory: MemoryProvider, served: Served
) -> None:
    def use() -> list[str]:
        with SyncCloudProvider.connect(CloudConfig.parse(served.cloud_config)) as provider:
            provider.refresh()
            return [group.id for group in provider.node_groups()]

    assert await asyncio.to_thread(use) == ["small", "large"]
    assert memory.log.count("refresh") == 1
