"""A server within the test, with clients that may call and clients that may not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cloudgraft.certs.authority import issue_client
from cloudgraft.server.listener import ListenerLimits
from cloudgraft.server.serve import ServeOptions
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, Served, serving
from tests.attacks import frames
from tests.attacks.http2 import METHOD, Http2, Target, Toll

ALLOWED = "cluster-autoscaler-grpc-client"
BLOCK = frames.header_block(METHOD)
SMALL = ListenerLimits(connections=16, streams=50, handshake=5.0)


@dataclass
class Place:
    """A server with mTLS, and a client that its authority knows and its list does not."""

    served: Served
    provider: MemoryProvider
    stranger: tuple[Path, Path]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.served.address.rpartition(":")
        return host, int(port)

    def target(self, *, allowed: bool = False) -> Target:
        certs = self.served.certificates
        assert certs is not None
        cert, key = (certs.client_cert, certs.client_key) if allowed else self.stranger
        return Target(host=self.address[0], port=self.address[1], ca=certs.ca_cert, cert=cert, key=key)

    def refused(self, reason: str, listener: str = "autoscaler") -> float:
        registry = self.served.service.metrics.registry
        labels = {"listener": listener, "reason": reason}
        return registry.get_sample_value("cloudgraft_refused_clients_total", labels) or 0.0

    def value(self, name: str, **labels: str) -> float:
        return self.served.service.metrics.registry.get_sample_value(name, labels) or 0.0

    def aimed(self, *, seconds: float) -> Target:
        """As one that may call, for so long."""
        return replace(self.target(allowed=True), seconds=seconds)

    @staticmethod
    def tasks() -> int:
        """Calls under way in the event loop."""
        return sum(
            task.get_name() == "rpc_task" or getattr(task.get_coro(), "__name__", "") == "_answer"
            for task in asyncio.all_tasks()
        )

    async def call(self, method: str = METHOD) -> None:
        """A call of the autoscaler, on a connection of its own."""
        certs = self.served.certificates
        assert certs is not None
        credentials = grpc.ssl_channel_credentials(
            certs.ca_cert.read_bytes(), certs.client_key.read_bytes(), certs.client_cert.read_bytes()
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.secure_channel(self.served.address, credentials, options=options) as channel:
            call: Any = channel.unary_unary(method)
            await call(b"", timeout=20)


@asynccontextmanager
async def attacked(directory: Path, limits: ListenerLimits = SMALL, *, deadline: float = 30.0) -> AsyncIterator[Place]:
    provider = MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))
    options = ServeOptions(allowed_clients=[ALLOWED], limits=limits, ops="127.0.0.1:0", deadline=deadline)
    async with serving(provider, options, mtls_in=directory) as served:
        yield Place(served, provider, issue_client(directory, "somebody-else"))


@asynccontextmanager
async def connected(place: Place, *, allowed: bool = False) -> AsyncIterator[tuple[Http2, Toll]]:
    toll = Toll()
    connection = Http2(place.target(allowed=allowed), toll)
    try:
        await connection.open()
        yield connection, toll
    finally:
        await connection.close()


@contextmanager
def idle_connections(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(count)]
