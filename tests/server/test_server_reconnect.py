"""A server that no longer leads: it sheds its connections, listens on, and tells that it is not to be called."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cloudgraft.certs.authority import create_bundle, renew
from cloudgraft.client import CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import UnavailableError
from cloudgraft.server.grpc_server import GrpcServer
from cloudgraft.server.listener import Access
from cloudgraft.server.serve import Running, ServeOptions, running
from cloudgraft.server.tls import TlsFiles
from cloudgraft.service import CloudProviderService
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from tests.conditions import until
from tests.transports import server_of

ADD_ONE = b"\x08\x01\x12\x01a"  # IncreaseSize of the group "a" by one
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))


def connect(address: str) -> Connection:
    return Connection(CloudConfig.parse(f"address: {address}"))


def method(channel: grpc.aio.Channel, rpc: str) -> Any:
    return channel.unary_unary(RPCS[rpc].path)  # bytes in, bytes out


async def comes_back(connection: Connection) -> None:
    """A call may still meet the end of the old connection, which takes a moment to be noticed."""

    async def answers() -> bool:
        try:
            return len(await RemoteProvider(connection).node_groups()) == 1
        except UnavailableError:
            return False

    await until(answers)


@asynccontextmanager
async def shared_server(trouble: Callable[[], str] = str) -> AsyncIterator[tuple[Running, MemoryProvider]]:
    provider = memory()
    options = ServeOptions(listen="127.0.0.1:0", ops="127.0.0.1:0", grace=0.0)
    async with running(provider, options, trouble=trouble) as server:
        yield server, provider


async def test_a_call_in_flight_ends_with_unavailable_and_its_change_goes_on() -> None:
    """R6: the caller is told at once and asks again; a change that was begun is not torn apart."""
    async with shared_server() as (server, provider), grpc.aio.insecure_channel(server.address) as channel:

        async def changed() -> bool:
            return await provider.target_size("a") == 1

        hold = provider.log.hold_next("increase_size")
        in_flight = asyncio.ensure_future(method(channel, "NodeGroupIncreaseSize")(ADD_ONE, timeout=20))
        await until(lambda: provider.log.count("increase_size") == 1)
        await server.drop_connections()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await in_flight
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not await changed()
        hold.set()
        await until(changed)


async def test_the_address_stays_and_clients_come_back_by_themselves() -> None:
    async with shared_server() as (server, _), connect(server.address) as connection:
        for _ in range(5):
            await comes_back(connection)
            await server.drop_connections()
            assert server.server.address == server.address
        await comes_back(connection)


async def test_the_connection_itself_is_closed_and_not_only_its_calls() -> None:
    """An autoscaler that kept it would never find the new leader behind the same name."""
    async with shared_server() as (server, _):
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        await reader.readexactly(9)  # the server's settings: the connection is up
        await server.drop_connections()
        async with asyncio.timeout(20):
            while await reader.read(4096):  # a GOAWAY, then the end
                pass
        writer.close()


async def test_many_at_once_are_as_good_as_one() -> None:
    async with shared_server() as (server, _), connect(server.address) as connection:
        await asyncio.gather(*(server.drop_connections() for _ in range(10)))
        await comes_back(connection)


async def test_mtls_and_the_newest_certificate_hold_for_the_new_connections(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=["127.0.0.1"])
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    server = server_of(CloudProviderService(memory()), Access(listen="127.0.0.1:0", tls=files))
    await server.start()
    try:
        mtls = f"address: {server.address}\ncert: {bundle.client_cert}\nkey: {bundle.client_key}\n"
        async with Connection(CloudConfig.parse(f"{mtls}cacert: {bundle.ca_cert}")) as connection:
            for _ in range(3):
                await comes_back(connection)
                await server.drop_connections()
                await asyncio.to_thread(renew, tmp_path, what="server")
                await comes_back(connection)
        async with connect(server.address) as plain:
            with pytest.raises(UnavailableError):
                await RemoteProvider(plain).node_groups()
    finally:
        await server.stop(0)


async def test_a_unix_socket_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = server_of(CloudProviderService(memory()), Access(listen=f"unix:{path}"))
    await server.start()
    try:
        async with connect(f"unix:{path}") as connection:
            for _ in range(20):
                await comes_back(connection)
                await server.drop_connections()
                assert path.is_socket()
    finally:
        await server.stop(0)
    assert not path.exists()


async def test_an_address_that_another_program_took_meanwhile_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = GrpcServer(CloudProviderService(memory()), Access(listen="127.0.0.1:0"))
    await server.start()
    try:
        thief = Thief(server, monkeypatch)
        with thief.loot:
            dropping = asyncio.create_task(server.drop_connections())
            await until(lambda: thief.attempts >= 2)
            assert not dropping.done()
        await dropping
        async with connect(server.address) as connection:
            await comes_back(connection)
    finally:
        await server.stop(0)


async def test_a_stop_does_not_wait_for_an_address_that_another_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    server = GrpcServer(CloudProviderService(memory()), Access(listen="127.0.0.1:0"))
    await server.start()
    thief = Thief(server, monkeypatch)
    with thief.loot:
        dropping = asyncio.create_task(server.drop_connections())
        await until(lambda: thief.attempts >= 1)
        async with asyncio.timeout(20):
            await server.stop(0)
            await dropping


async def test_a_caller_that_is_cancelled_does_not_leave_the_address_closed() -> None:
    async with shared_server() as (server, _), connect(server.address) as connection:
        for yields in range(12):  # cancelled at another point each time
            dropping = asyncio.create_task(server.drop_connections())
            for _ in range(yields):
                await asyncio.sleep(0)
            dropping.cancel()
            await asyncio.wait({dropping})
            await server.drop_connections()
            await comes_back(connection)


async def test_while_stopping_it_only_ends_sooner() -> None:
    provider = memory()
    server = server_of(CloudProviderService(provider), Access(listen="127.0.0.1:0"))
    await server.drop_connections()  # nor does it harm one that was not started
    await server.start()
    hold = provider.log.hold_next("increase_size")
    async with grpc.aio.insecure_channel(server.address) as channel:
        in_flight = asyncio.ensure_future(method(channel, "NodeGroupIncreaseSize")(ADD_ONE, timeout=20))
        await until(lambda: provider.log.count("increase_size") == 1)
        stopping = asyncio.ensure_future(server.stop(600))
        await until(lambda: _refuses(server.address))
        await server.drop_connections()
        with pytest.raises(grpc.aio.AioRpcError):
            await in_flight
        assert _refuses(server.address)
        hold.set()
        await stopping
    await server.drop_connections()
    assert _refuses(server.address)


def _refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as attempt:
        return attempt.connect_ex((host, int(port))) != 0


class Thief:
    """Takes a server's port in the moment between its closing and its opening again."""

    def __init__(self, server: GrpcServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts = 0  # of the server, to get it back
        self.loot = socket.socket()
        self.loot.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind = server._bind

        def late(new: grpc.aio.Server) -> int:
            if self.attempts == 0:
                self.loot.bind(("127.0.0.1", int(server.address.rpartition(":")[2])))
                self.loot.listen()
            self.attempts += 1
            return bind(new)

        monkeypatch.setattr(server, "_bind", late)  # the only way into that moment


async def test_health_and_readiness_follow_the_trouble() -> None:
    trouble = ""
    async with shared_server(lambda: trouble) as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for trouble in ("", "not the leader: b leads", "", "the journal cannot be written"):
            for name in ("", SERVICE):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
                assert answer.status == (NOT_SERVING if trouble else SERVING)
            status, body = await asyncio.to_thread(_get, f"http://{server.ops_address}/readyz")
            assert (status, body["reason"]) == (503 if trouble else 200, trouble)


async def test_those_who_watch_the_health_are_told_of_a_change() -> None:
    trouble = ""
    async with shared_server(lambda: trouble) as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=30)
        assert (await watch.read()).status == SERVING
        trouble = "not the leader: b leads"
        assert (await watch.read()).status == NOT_SERVING
        trouble = ""
        assert (await watch.read()).status == SERVING
        watch.cancel()


async def test_a_state_that_cannot_be_told_counts_as_trouble(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("bug")

    async with shared_server(broken) as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert answer.status == NOT_SERVING
    assert len([record for record in caplog.records if "counts as unusable" in record.getMessage()]) == 1


def _get(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
