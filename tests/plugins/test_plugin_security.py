"""Nobody but its host can call a plugin: not in plain text, not without a certificate, not with another one."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from cloudgraft.plugins.host.process import Child, PluginSpec, launch
from cloudgraft.plugins.throwaway_tls import make_key_pair
from tests.plugins.node_program import NODE_PLUGIN, node_binary
from tests.plugins.plugin_programs import TIMING, provider_spec

NODE_GROUPS = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroups"
OPTIONS = [("grpc.ssl_target_name_override", "localhost"), ("grpc.default_authority", "localhost")]
SPECS = {
    "python": provider_spec(),  # makes its own certificate
    "node": PluginSpec(name="node", command=[node_binary(), str(NODE_PLUGIN)]),  # uses the one made for it
}


@pytest_asyncio.fixture(params=list(SPECS))
async def child(request: pytest.FixtureRequest) -> AsyncIterator[Child]:
    child = await launch(SPECS[request.param], TIMING)
    yield child
    await child.stop()


def trusted(child: Child) -> bytes:
    der = child.handshake.certificate
    return ssl.DER_cert_to_PEM_cert(der).encode() if der else child.tls.server.certificate


async def status(channel: grpc.aio.Channel) -> grpc.StatusCode:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(NODE_GROUPS)
    try:
        await method(b"", timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def encrypted(child: Child, key: bytes | None = None, certificate: bytes | None = None) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(trusted(child), key, certificate)
    return grpc.aio.secure_channel(child.handshake.target, credentials, options=OPTIONS)


async def test_the_host_is_answered(child: Child) -> None:
    async with encrypted(child, child.tls.client.key, child.tls.client.certificate) as channel:
        assert await status(channel) is grpc.StatusCode.OK


async def test_a_client_in_plain_text_is_refused(child: Child) -> None:
    async with grpc.aio.insecure_channel(child.handshake.target, options=OPTIONS[1:]) as channel:
        assert await status(channel) is grpc.StatusCode.UNAVAILABLE


async def test_a_client_without_a_certificate_is_refused(child: Child) -> None:
    async with encrypted(child) as channel:
        assert await status(channel) is grpc.StatusCode.UNAVAILABLE


async def test_a_client_with_another_certificate_is_refused(child: Child) -> None:
    """Also with the certificate of the plugin itself, which is trusted by the host and by nobody else."""
    other = make_key_pair()
    async with encrypted(child, other.key, other.certificate) as channel:
        assert await status(channel) is grpc.StatusCode.UNAVAILABLE
    async with encrypted(child, child.tls.server.key, child.tls.server.certificate) as channel:
        assert await status(channel) is grpc.StatusCode.UNAVAILABLE


async def test_two_runs_of_one_plugin_do_not_trust_each_other(child: Child) -> None:
    other = await launch(PluginSpec(name="second", command=[sys.executable, *provider_spec().command[1:]]), TIMING)
    try:
        async with encrypted(other, child.tls.client.key, child.tls.client.certificate) as channel:
            assert await status(channel) is grpc.StatusCode.UNAVAILABLE
    finally:
        await other.stop()
