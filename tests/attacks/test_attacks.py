"""A few hundred streams and connections of those who may not call: refused, counted, and nobody else is harmed.

`python -m tests.attacks` does the same at full size, with a process of its own, and prints figures.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import urllib.request
from pathlib import Path

import grpc
import grpc.aio
import pytest

from cloudgraft.server.listener import ListenerLimits
from tests.attacks import frames
from tests.attacks.http2 import flood
from tests.attacks.place import BLOCK, attacked, connected, idle_connections
from tests.conditions import until
from tests.transports import NATIVE


async def test_a_stranger_is_refused_at_the_headers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place) as (connection, toll):
            for _ in range(3):
                await connection.write(frames.headers(connection.next_stream(), BLOCK))  # and no body, ever
            await until(lambda: toll.answered == 3, what="all are answered")
            assert all(b"allowedClients" in headers for headers in connection.headers_of.values())
        assert place.refused("not_allowed") == 3
        assert place.value("cloudgraft_last_allowed_call_timestamp_seconds") == 0
        await place.call()
        assert place.value("cloudgraft_last_allowed_call_timestamp_seconds") > 0
    assert "somebody-else" not in str(place.provider.log.calls)
    told = [record for record in caplog.records if "allowedClients: somebody-else" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]  # once, not for every call


async def test_a_connection_that_is_refused_again_and_again_is_closed(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place) as (connection, _):
            await flood(connection, BLOCK)
        assert place.refused("flood") == 1
        await place.call()


async def test_a_stranger_is_refused_for_methods_that_are_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place) as (connection, _):
            await flood(connection, frames.header_block("/no.such.Service/Method"))
        assert place.refused("not_allowed") >= 20
        assert place.refused("flood") == 1
        await place.call()
    assert "allowedClients: somebody-else" in caplog.text


async def test_an_allowed_client_hears_that_a_method_is_not_there(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await place.call("/no.such.Service/Method")
        assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert place.refused("not_allowed") == 0


async def test_streams_beyond_the_limit_are_reset(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place, connected(place, allowed=True) as (connection, toll):
        await connection.write(b"".join(frames.headers(connection.next_stream(), BLOCK) for _ in range(300)))
        await until(
            lambda: toll.reset >= 250 or not connection.is_open, what="all but 50 are reset, or all are cut off"
        )
        assert toll.reset <= 250
        await place.call()


async def test_streams_that_are_reset_at_once_do_not_pile_up(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, _):
            for _ in range(10):
                streams = [connection.next_stream() for _ in range(50)]
                await connection.write(b"".join(frames.headers(one, BLOCK) + frames.reset(one) for one in streams))
            await place.call()
        await until(lambda: place.tasks() == 0, what="nothing is left of them")


async def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, toll):
            stream = connection.next_stream()
            connection.in_headers = True
            await connection.write(frames.headers(stream, BLOCK, ends_headers=False))
            piece = b"\x00\x01x\x7f\x81\x7e" + b"y" * 16256
            for _ in range(3):
                await connection.write(frames.continuation(stream, piece))
            await connection.write(frames.continuation(stream, b"", ends_headers=True))
            await until(lambda: bool(toll.answered), what="the call is refused, without its body")
            told = connection.headers_of[stream]
            assert b"exceeds hard limit" in told or b":status: 431" in told
        await place.call()


async def test_idle_connections_do_not_lock_the_autoscaler_out(tmp_path: Path, transport: str) -> None:
    most = 16 if transport == NATIVE else 8  # grpcio cannot make room for one that comes, so it keeps some
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (lasting, toll):
            headers = frames.headers(lasting.next_stream(), BLOCK)
            await lasting.write(headers + frames.data(lasting.last_stream, b"\0" * 5, ends_stream=True))
            await until(lambda: toll.answered > 0, what="it is known as one that may call")
            with idle_connections(place.address, 60):
                await until(lambda: place.refused("too_many") > 0, what="some are closed")
                await until(lambda: place.value("cloudgraft_connections", listener="autoscaler") <= most, what="room")
                await place.call()
                assert lasting.is_open
        assert place.value("cloudgraft_connections_limit", listener="autoscaler") == 16


async def test_a_handshake_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    limits = ListenerLimits(connections=16, handshake=0.2)
    async with attacked(tmp_path, limits) as place:
        with idle_connections(place.address, 1) as (connection,):
            assert await asyncio.to_thread(connection.recv, 1) == b""


async def test_idle_connections_to_the_second_port_do_not_stop_probes(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        ops = place.served.ops_address
        assert ops is not None
        host, _, port = ops.rpartition(":")
        with idle_connections((host, int(port)), 150):
            assert await asyncio.to_thread(_status, f"http://{ops}/healthz") == 200
            await place.call()
        assert place.refused("too_many", "ops") >= 150 - 64
        assert place.value("cloudgraft_connections_limit", listener="ops") == 64


async def test_the_second_port_reads_few_headers(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        ops = place.served.ops_address
        assert ops is not None
        host, _, port = ops.rpartition(":")
        for request in (b"GET /" + b"x" * 20_000, b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(request)
                assert (await asyncio.to_thread(connection.recv, 100)).split()[1] in {b"414", b"431"}


def _status(url: str) -> int:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return int(answer.status)
