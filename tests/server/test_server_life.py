"""A server on a real socket: health, reflection, bad bytes, metrics, graceful stop."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cloudgraft.client import CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import (
    BlockingProvider,
    Instance,
    NodeGroup,
    NodeRef,
    OutOfStockError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.server.listener import Access
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.serve import ServeOptions
from cloudgraft.service import CloudProviderService
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, Served, serving
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from tests.conditions import until
from tests.transports import server_of


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))


def connect(served: Served) -> Connection:
    return Connection(CloudConfig.parse(served.cloud_config))


async def raw(served: Served, path: str, data: bytes) -> grpc.StatusCode:
    async with grpc.aio.insecure_channel(served.address) as channel:
        call: Any = channel.unary_unary(path)  # bytes in, bytes out
        try:
            await call(data, timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_health_is_serving_for_the_server_and_the_service() -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_names_the_service() -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]), timeout=10)]
        names = [service.name for service in answers[0].list_services_response.service]
        assert SERVICE in names


@pytest.mark.parametrize("rpc", sorted(RPCS))
async def test_bytes_that_are_no_message_are_an_invalid_argument(rpc: str) -> None:
    async with serving(memory()) as served:
        assert await raw(served, RPCS[rpc].path, b"\xff\xff\xff\xff") is grpc.StatusCode.INVALID_ARGUMENT
        assert await raw(served, RPCS["NodeGroups"].path, b"") is grpc.StatusCode.OK


async def test_an_unknown_method_is_unimplemented() -> None:
    async with serving(memory()) as served:
        assert await raw(served, f"/{SERVICE}/Nothing", b"") is grpc.StatusCode.UNIMPLEMENTED


async def test_a_hundred_megabytes_are_refused_and_the_server_goes_on() -> None:
    async with serving(memory()) as served:
        code = await raw(served, RPCS["NodeGroupForNode"].path, b"\x0a" * 100_000_000)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await raw(served, RPCS["NodeGroups"].path, b"") is grpc.StatusCode.OK


async def test_garbage_on_the_port_does_not_disturb_other_clients() -> None:
    async with serving(memory()) as served, connect(served) as connection:
        provider = RemoteProvider(connection)
        host, _, port = served.address.rpartition(":")
        for garbage in (b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            await writer.drain()
            await reader.read(100)
            writer.close()
            assert len(await provider.node_groups()) == 1


async def test_errors_that_share_a_status_arrive_as_what_they_are() -> None:
    provider = memory()
    async with serving(provider) as served, connect(served) as connection:
        remote = RemoteProvider(connection)
        for error in (OutOfStockError("none left"), RateLimitedError("slow down", retry_after=7.5)):
            provider.log.fail_next("refresh", error)
            with pytest.raises(type(error)) as caught:
                await remote.refresh()
            assert caught.value.message == error.message
            assert caught.value.retry_after == error.retry_after


@pytest.mark.parametrize(
    "message",
    ["é" * 50_000, "line\n" * 10_000, "half \ud800 pair", "x" * 100_000],
    ids=["accents", "lines", "surrogate", "long"],
)
async def test_a_message_of_any_kind_and_length_arrives_as_the_right_error(message: str) -> None:
    provider = memory()
    async with serving(provider) as served, connect(served) as connection:
        provider.log.fail_next("refresh", UnavailableError(message))
        with pytest.raises(UnavailableError) as caught:
            await RemoteProvider(connection).refresh()
        assert caught.value.message[:5] == message[:5]
        provider.log.fail_next("refresh", RateLimitedError("slow", retry_after=float("nan")))
        with pytest.raises(RateLimitedError) as limited:
            await RemoteProvider(connection).refresh()
        assert limited.value.retry_after is None


async def test_a_stop_lets_calls_in_flight_end_and_refuses_new_ones() -> None:
    provider = memory()
    service = CloudProviderService(provider)
    server = server_of(service, Access(listen="127.0.0.1:0"))
    await server.start()
    hold = provider.log.hold_next("increase_size")
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary(RPCS["NodeGroupIncreaseSize"].path)
        in_flight = asyncio.ensure_future(call(b"\x08\x01\x12\x01a", timeout=10))
        await until(lambda: provider.log.count("increase_size") == 1)
        stopping = asyncio.ensure_future(server.stop(10))

        async def refused() -> bool:
            async with Connection(CloudConfig.parse(f"address: {server.address}")) as fresh:
                try:
                    await RemoteProvider(fresh).node_groups()
                except UnavailableError:
                    return True
                return False

        await until(refused)
        assert not in_flight.done()
        hold.set()
        await in_flight
        await stopping
    assert await provider.target_size("a") == 1


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    async with serving(memory()) as served:
        second = server_of(CloudProviderService(memory()), Access(listen=served.address))
        with pytest.raises(UnavailableError, match="is another program using it"):
            await second.start()


def get(address: str | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_the_second_port_has_metrics_health_and_readiness() -> None:
    async with serving(memory(), ServeOptions(ops="127.0.0.1:0")) as served, connect(served) as connection:
        await RemoteProvider(connection).node_groups()
        status, text = await asyncio.to_thread(get, served.ops_address, "/metrics")
        assert status == 200
        assert 'cloudgraft_rpcs_total{code="OK",rpc="NodeGroups"} 1.0' in text
        for path in ("/healthz", "/readyz", "/readyz?verbose"):
            status, text = await asyncio.to_thread(get, served.ops_address, path)
            assert (status, json.loads(text)["ok"]) == (200, True)
        assert (await asyncio.to_thread(get, served.ops_address, "/other"))[0] == 404


async def test_the_second_port_speaks_ipv6_and_head() -> None:
    ops = OpsServer("[::1]:0", CloudProviderService(memory()).metrics.registry, lambda: "")
    await ops.start()
    try:
        assert ops.address.startswith("[::1]:")
        assert (await asyncio.to_thread(get, ops.address, "/healthz"))[0] == 200
        request = urllib.request.Request(f"http://{ops.address}/healthz", method="HEAD")
        answer = await asyncio.to_thread(urllib.request.urlopen, request, timeout=10)
        with answer:
            assert (answer.status, answer.read(), answer.headers["Server"].strip()) == (200, b"", "cloudgraft")
    finally:
        await ops.stop()


def _broken() -> str:
    raise RuntimeError("bug")


async def test_a_probe_that_fails_is_answered_with_500() -> None:
    ops = OpsServer("127.0.0.1:0", CloudProviderService(memory()).metrics.registry, _broken)
    await ops.start()
    try:
        assert (await asyncio.to_thread(get, ops.address, "/readyz"))[0] == 500
    finally:
        await ops.stop()


async def test_not_ready_says_why() -> None:
    ops = OpsServer("127.0.0.1:0", CloudProviderService(memory()).metrics.registry, lambda: "still starting")
    await ops.start()
    try:
        status, text = await asyncio.to_thread(get, ops.address, "/readyz")
        assert (status, json.loads(text)["reason"]) == (503, "still starting")
    finally:
        await ops.stop()


async def test_a_second_port_that_is_taken_or_wrong_is_a_clear_error() -> None:
    registry = CloudProviderService(memory()).metrics.registry
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="for metrics and health"):
            OpsServer(f"127.0.0.1:{taken.getsockname()[1]}", registry, lambda: "")


class Plain(BlockingProvider):
    """An author's provider without a single `async`."""

    def __init__(self) -> None:
        self.target = 0

    def node_groups(self) -> list[NodeGroup]:
        return [NodeGroup(id="plain", min_size=0, max_size=3)]

    def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return None

    def target_size(self, group: str) -> int:
        return self.target

    def instances(self, group: str) -> list[Instance]:
        return [Instance(id=f"plain://{number}") for number in range(self.target)]

    def increase_size(self, group: str, delta: int) -> None:
        self.target += delta

    def delete_nodes(self, group: str, nodes: object) -> None:
        self.target -= 1

    def decrease_target_size(self, group: str, delta: int) -> None:
        pass


async def test_a_provider_without_async_is_served_too() -> None:
    async with serving(Plain()) as served, connect(served) as connection:
        remote = RemoteProvider(connection)
        await remote.increase_size("plain", 2)
        assert await remote.target_size("plain") == 2
        assert len(await remote.instances("plain")) == 2
        assert await remote.gpu_label() == ""
