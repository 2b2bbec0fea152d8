"""Every way in which a plugin may say that it is well, or not say it at all."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cloudgraft.plugins.handshake import PluginError
from cloudgraft.plugins.host.supervisor import HealthProbe
from tests.conditions import until
from tests.own_port import OWN_PORT

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def probing(statuses: dict[str, int] | None) -> AsyncIterator[tuple[HealthProbe, health.aio.HealthServicer]]:
    """A probe of a server that answers for these services; None for one without a health service."""
    server, servicer = grpc.aio.server(options=OWN_PORT), health.aio.HealthServicer()
    if statuses is not None:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        await servicer.set("", health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        for name, status in statuses.items():
            await servicer.set(name, status)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield HealthProbe(channel), servicer
    await server.stop(None)


@pytest.mark.parametrize("statuses", [{"plugin": SERVING}, {"": SERVING}, {"plugin": SERVING, "": NOT_SERVING}, None])
async def test_a_plugin_is_well(statuses: dict[str, int] | None) -> None:
    async with probing(statuses) as (probe, _):
        await probe.check(10)
        await probe.check(10)


@pytest.mark.parametrize("statuses", [{"plugin": NOT_SERVING}, {"": NOT_SERVING}])
async def test_a_plugin_that_says_so_is_not_well(statuses: dict[str, int]) -> None:
    async with probing(statuses) as (probe, _):
        with pytest.raises(PluginError, match="NOT_SERVING"):
            await probe.check(10)


async def test_a_plugin_may_fall_ill_and_recover() -> None:
    async with probing({"": SERVING}) as (probe, servicer):
        await probe.check(10)
        await servicer.set("", NOT_SERVING)
        with pytest.raises(PluginError):
            await probe.check(10)
        await servicer.set("", SERVING)
        await probe.check(10)


async def test_an_unreachable_plugin_is_unhealthy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen
        async with grpc.aio.insecure_channel(f"127.0.0.1:{taken.getsockname()[1]}") as channel:
            with pytest.raises(PluginError, match="UNAVAILABLE"):
                await HealthProbe(channel).check(10)


async def test_a_connection_that_is_gone_is_not_well_even_without_a_health_service(tmp_path: Path) -> None:
    server = grpc.aio.server(options=OWN_PORT)
    server.add_insecure_port(f"unix:{tmp_path}/s")  # not a port, which another server might take over
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
        probe = HealthProbe(channel)
        await probe.check(10)
        await server.stop(None)

        async def noticed() -> bool:  # the channel does not see at once that the other side is gone
            try:
                await probe.check(0.1)
            except PluginError as error:
                return "no connection" in error.message
            return False

        await until(noticed)
