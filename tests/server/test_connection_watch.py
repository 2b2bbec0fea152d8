"""What is kept of connections is bounded by how many there can be, not by how many there ever were."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from cloudgraft.server.clients import ConnectionWatch
from tests.conditions import until

LIMIT = 16


class Listener:
    """Accepts connections as gRPC does, and closes its side when the client hangs up."""

    def __init__(self) -> None:
        self.accepted: dict[int, asyncio.StreamWriter] = {}  # by the client's port
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        self.accepted[port] = writer
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        del self.accepted[port]

    async def connected(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        port = client.getsockname()[1]
        await until(lambda: port in self.accepted, what="the connection is accepted")
        return client


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.handle, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener
    await until(lambda: not listener.accepted, what="all connections are closed")


@pytest.fixture
def watch(listener: Listener) -> ConnectionWatch:
    watch = ConnectionWatch(LIMIT, refuse=lambda _reason: None)
    watch._port = listener.port  # nothing by itself: the tests say when it looks
    return watch


def named(client: socket.socket) -> str:
    """As gRPC names the peer."""
    host, port = client.getsockname()
    return f"ipv4:{host}:{port}"


async def test_a_client_that_connects_again_and_again_is_not_remembered_for_ever(
    listener: Listener, watch: ConnectionWatch
) -> None:
    with await listener.connected() as faithful:
        watch.trust(named(faithful))
        for _ in range(10 * LIMIT):
            with await listener.connected() as client:
                watch.trust(named(client))
            await until(lambda: len(listener.accepted) == 1, what="the connection is closed")
            assert len(watch._trusted) <= 2 * LIMIT
        assert named(faithful) in watch._trusted


async def test_who_is_connected_stays_trusted_when_others_are_forgotten(
    listener: Listener, watch: ConnectionWatch
) -> None:
    with contextlib.ExitStack() as stack:
        trusted = [stack.enter_context(await listener.connected()) for _ in range(LIMIT // 2)]
        for client in trusted:
            watch.trust(named(client))
        for number in range(10 * LIMIT):  # of connections that are closed already
            watch.trust(f"ipv4:127.0.0.2:{number + 1}")
        strangers = [stack.enter_context(await listener.connected()) for _ in range(LIMIT // 2)]
        assert watch._make_room() == LIMIT // 2
        await until(lambda: len(listener.accepted) == len(trusted), what="the strangers are hung up on")
        assert {client.getsockname()[1] for client in trusted} == listener.accepted.keys()
        assert all(client.recv(1) == b"" for client in strangers)
