"""Ready replies must not hide a hung engine: after 15 s without a sign of life the table closes, and comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cloudgraft.server.serve import ServeOptions, Transport, running
from cloudgraft.service.gate import Gate
from cloudgraft.wire.externalgrpc import RPCS
from tests.engine.engine_rig import Rig, group
from tests.needs import needs_native

pytestmark = [needs_native, pytest.mark.thorough]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
HANG = 22.0  # seconds: the table closes after 15


@contextmanager
def served_by_a_thread(directory: Path) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """An engine in an event loop of its own, so that the test does not hang with it."""
    up: list[tuple[str, asyncio.AbstractEventLoop]] = []
    is_up, end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        rig = Rig(directory, groups=[group("a")])
        options = ServeOptions(listen="127.0.0.1:0", transport=Transport.NATIVE)
        async with running(rig.provider, options, trouble=str, gate=Gate(rig.engine.check_open)) as server:
            up.append((server.address, asyncio.get_running_loop()))
            is_up.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(30)
        yield up[0]
    finally:
        for _, loop in up:
            loop.call_soon_threadsafe(end.set)
        thread.join(60)


@pytest.mark.timeout(150)
def test_a_hung_event_loop_closes_the_table_until_it_is_back(tmp_path: Path) -> None:
    with served_by_a_thread(tmp_path) as (address, loop), grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
        health = health_pb2_grpc.HealthStub(channel)

        def is_answered(seconds: float) -> bool:
            try:
                call(b"", timeout=seconds)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                return False
            return True

        def state() -> int:
            return int(health.Check(health_pb2.HealthCheckRequest(), timeout=20).status)

        assert is_answered(20)
        assert state() == SERVING
        began = time.monotonic()
        loop.call_soon_threadsafe(time.sleep, HANG)
        assert is_answered(5), "ready replies need no event loop"
        assert state() == SERVING
        while is_answered(1.0):
            assert time.monotonic() - began < HANG - 3, "the table does not close"
            time.sleep(0.2)
        assert time.monotonic() - began > 13, "the table has closed too early"
        assert state() == NOT_SERVING
        assert is_answered(60), "the loop is back"
        while state() != SERVING:
            assert time.monotonic() - began < HANG + 30, "the health does not come back"
            time.sleep(0.2)
