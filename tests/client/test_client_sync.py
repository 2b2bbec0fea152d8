"""The sync face: the same client for any thread, with a loop of its own that ends when it is closed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from cloudgraft.client import NotImplementedByProtocolError, ResourceLimiter, SyncCloudProvider
from cloudgraft.client.sync import LoopThread
from cloudgraft.sdk import AutoscalingOptions, NodeRef, NodeTemplate, Pod
from cloudgraft.sdk.errors import DeadlineError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.wire.externalgrpc import template_to_pb
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import CountingServer, StatusError

_NODE = NodeRef(name="n", provider_id="sim://n")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_GROUP = pb.NodeGroup(id="g", minSize=1, maxSize=3, debug="d")


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "cloudgraft-client"]


def test_all_15_calls_and_the_caches_work_without_an_event_loop(server: CountingServer) -> None:
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(nodeGroups=[_GROUP])
    server.answers["NodeGroupForNode"] = pb.NodeGroupForNodeResponse(nodeGroup=_GROUP)
    server.answers["NodeGroupTargetSize"] = pb.NodeGroupTargetSizeResponse(targetSize=2)
    server.answers["NodeGroupTemplateNodeInfo"] = template_to_pb(NodeTemplate(labels={"a": "b"}))
    with SyncCloudProvider.connect(server.config) as provider:
        for _ in range(2):
            (group,) = provider.node_groups()
            found = provider.node_group_for_node(_NODE)
            assert found is not None
            assert found.id == group.id == "g"
            assert group.template_node_info() == NodeTemplate(labels={"a": "b"})
            assert (provider.gpu_label(), provider.get_available_gpu_types()) == ("", frozenset())
            assert provider.get_node_gpu_config(_NODE) is None
        (group,) = provider.node_groups()
        assert (group.min_size, group.max_size, group.debug) == (1, 3, "d")
        assert (group.exist, group.autoprovisioned, repr(group)) == (True, False, "SyncNodeGroup('g', 1..3)")
        assert group.target_size() == 2
        assert group.nodes() == []
        assert group.get_options(AutoscalingOptions()) is None
        group.increase_size(1)
        group.decrease_target_size(-1)
        group.delete_nodes([_NODE])
        assert provider.pricing().node_price(_NODE, _NOW, _NOW) == 0
        assert provider.pricing().pod_price(Pod(name="p"), _NOW, _NOW) == 0
        provider.refresh()
        provider.cleanup()
    assert len(server.calls) == 15
    assert set(server.calls.values()) == {1}  # so every cache was hit


def test_errors_arrive_as_they_are(server: CountingServer) -> None:
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(nodeGroups=[_GROUP])
    server.answers["NodeGroupTargetSize"] = StatusError(grpc.StatusCode.NOT_FOUND, "no group 'g'")
    with SyncCloudProvider.connect(server.config, resource_limiter=ResourceLimiter()) as provider:
        (group,) = provider.node_groups()
        with pytest.raises(NotFoundError, match="no group 'g'"):
            group.target_size()
        for ask in (
            lambda: provider.has_instance(_NODE),
            provider.get_available_machine_types,
            lambda: provider.new_node_group("large"),
            lambda: group.atomic_increase_size(1),
            lambda: group.force_delete_nodes([_NODE]),
            group.create,
            group.delete,
        ):
            with pytest.raises(NotImplementedByProtocolError):
                ask()
        assert provider.name == "externalgrpc"
        assert provider.get_resource_limiter() == ResourceLimiter()


def test_many_threads_may_call_at_once_and_share_the_caches(server: CountingServer) -> None:
    server.answers["NodeGroupForNode"] = pb.NodeGroupForNodeResponse(nodeGroup=_GROUP)
    with SyncCloudProvider.connect(server.config) as provider, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(provider.node_group_for_node, [NodeRef(name=f"n{i % 10}") for i in range(200)]))
    assert all(group is not None for group in found)
    assert server.calls["NodeGroupForNode"] == 10


async def test_it_may_be_used_in_a_thread_of_a_program_that_has_a_loop(server: CountingServer) -> None:
    with SyncCloudProvider.connect(server.config) as provider:
        provider.refresh()
    assert server.calls["Refresh"] == 1


def test_closing_ends_the_thread_and_refuses_further_calls(server: CountingServer) -> None:
    provider = SyncCloudProvider.connect(server.config)
    provider.refresh()
    assert client_threads()
    provider.close()
    provider.close()
    assert not client_threads()
    with pytest.raises(PreconditionError, match="closed: make a new one"):
        provider.refresh()


def test_closing_ends_the_calls_of_other_threads_with_an_error(server: CountingServer) -> None:
    server.hang.add("Refresh")
    provider = SyncCloudProvider.connect(server.config)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(provider.refresh)
        server.held.acquire()
        provider.close()
        with pytest.raises(DeadlineError, match="closed during the call"):
            waiting.result()


def test_a_client_that_cannot_be_made_leaves_no_thread_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        SyncCloudProvider.connect(tmp_path / "no-such.yaml")
    assert not client_threads()


def test_a_call_from_the_clients_own_loop_is_refused_instead_of_hanging() -> None:
    thread = LoopThread("cloudgraft-client")

    async def outer() -> None:
        thread.run(nothing())

    async def nothing() -> None:
        pass

    with pytest.raises(PreconditionError, match="use the async one"):
        thread.run(outer())
    thread.close(nothing)


def test_closing_cancels_what_still_runs_in_the_loop() -> None:
    thread = LoopThread("cloudgraft-client")
    started, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def nothing() -> None:
        pass

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: thread.run(forever()))
        started.wait()
        thread.close(nothing)
        with pytest.raises(DeadlineError):
            waiting.result()
    assert ended.is_set()
