"""The load generator that uses gRPC: asks one server in blocks, and keeps the time of every call.

It shares the machine with the servers, so it does as little as it can: bytes that were encoded before, no messages.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from bench.processes import ServerProcess
from cloudgraft.certs.authority import Bundle
from cloudgraft.wire.externalgrpc import RPCS

DEADLINE = 5.0  # the autoscaler's
Method = Callable[[bytes], "grpc.aio.UnaryUnaryCall[bytes, bytes]"]


@dataclass(frozen=True, slots=True)
class Block:
    """The calls made to one server in one go."""

    micros: Sequence[float]  # per call, in no order
    seconds: float  # from the first call to the last answer


class Caller(Protocol):
    """Asks one server over one connection, as an autoscaler does."""

    server: ServerProcess

    async def answer(self, rpc: str, request: bytes) -> bytes:
        """One call, to look at what it answers."""

    async def block(self, rpc: str, requests: Sequence[bytes], *, callers: int) -> Block:
        """Sends all requests, so many at a time; raises when one of them fails."""

    async def close(self) -> None:
        """Ends the connection."""


class GrpcCaller:
    """A caller by way of grpc.aio."""

    def __init__(self, server: ServerProcess, certificates: Path | None) -> None:
        self.server = server
        if certificates is None:
            self._channel = grpc.aio.insecure_channel(server.address)
        else:
            self._channel = grpc.aio.secure_channel(server.address, _credentials(certificates))
        self._methods: dict[str, Method] = {}

    async def answer(self, rpc: str, request: bytes) -> bytes:
        """One call, to look at what it answers."""
        return await self._method(rpc)(request)

    async def block(self, rpc: str, requests: Sequence[bytes], *, callers: int) -> Block:
        """Sends all requests, so many at a time; raises when one of them fails."""
        method, micros, queue = self._method(rpc), list[float](), iter(requests)
        started = time.perf_counter()
        await asyncio.gather(*(_work(method, queue, micros) for _ in range(callers)))
        return Block(micros, time.perf_counter() - started)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    def _method(self, rpc: str) -> Method:
        if rpc not in self._methods:
            multi: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(RPCS[rpc].path)
            self._methods[rpc] = lambda request: multi(request, timeout=DEADLINE)
        return self._methods[rpc]


def in_turn(requests: Sequence[bytes], count: int) -> Iterator[list[bytes]]:
    """Lists of so many requests, going round and round through all of them."""
    endless = itertools.cycle(requests)
    while True:
        yield list(itertools.islice(endless, count))


async def _work(method: Method, queue: Iterator[bytes], micros: list[float]) -> None:
    clock = time.perf_counter_ns
    for request in queue:
        started = clock()
        await method(request)
        micros.append((clock() - started) / 1000)


def _credentials(certificates: Path) -> grpc.ChannelCredentials:
    files = Bundle.at(certificates)
    return grpc.ssl_channel_credentials(
        files.ca_cert.read_bytes(), files.client_key.read_bytes(), files.client_cert.read_bytes()
    )
