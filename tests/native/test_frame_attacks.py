"""What HTTP/2 lets a client do at no cost: each is bounded, and other clients go on. The client here may call."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cloudgraft.server.listener import ListenerLimits
from tests.attacks import frames
from tests.attacks.attacks import ATTACKS, attack
from tests.attacks.frame_attacks import bomb, repeat
from tests.attacks.http2 import Http2, Toll
from tests.attacks.place import BLOCK, Place, attacked, connected
from tests.conditions import until

native_server = pytest.importorskip(
    "cloudgraft.server.native_server", reason="cloudgraft-native is not installed: make native"
)

ENHANCE_YOUR_CALM = 11
WHOLE_CALL = b"\0" * 5
QUICK = ListenerLimits(connections=16, handshake=0.3)


async def cut_off(connection: Http2, some: bytes, most: int = 32_000_000) -> int:
    """Writes until the server closes the connection; gives the number of bytes."""
    written = 0
    with suppress(OSError):
        written = await repeat(connection, some, time.monotonic() + 60, most)
    await until(lambda: not connection.is_open, what="the server closes it")
    return written


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(frames.ping(), id="pings"),
        pytest.param(frames.settings(), id="empty settings"),
        pytest.param(frames.settings({frames.INITIAL_WINDOW_SIZE: 1}), id="settings"),
        pytest.param(frames.window_update(0, 1), id="window updates"),
        pytest.param(frames.frame(0x20, 0, 0), id="frames of an unknown kind"),
        pytest.param(frames.frame(2, 0, 1, b"\0\0\0\0\0"), id="priorities"),
    ],
)
async def test_a_flood_of_frames_without_a_call_ends_the_connection(tmp_path: Path, frame: bytes) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, _):
            assert await cut_off(connection, frame * 10_000) < 16_000_000  # some of it is on the way
        await place.call()


async def test_a_flood_is_counted(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place, connected(place, allowed=True) as (connection, _):
        await cut_off(connection, frames.ping() * 10_000)
        await until(lambda: place.refused("flood") == 1, what="it is counted")


async def test_few_pings_and_settings_are_no_flood(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place, connected(place, allowed=True) as (connection, toll):
        await connection.write((frames.ping() + frames.settings()) * 200)
        stream = connection.next_stream()
        await connection.write(frames.headers(stream, BLOCK) + frames.data(stream, WHOLE_CALL, ends_stream=True))
        await until(lambda: toll.answered > 0, what="its call is answered")
        assert place.refused("flood") == 0


async def test_a_message_in_frames_without_data_is_refused(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, _):
            stream = connection.next_stream()
            await connection.write(frames.headers(stream, BLOCK) + frames.data(stream, b"") * 200)
            await until(
                lambda: b"grpc-status: 8" in connection.headers_of.get(stream, b"") or not connection.is_open,
                what="the call is refused, or cut off",
            )
        await place.call()


@pytest.mark.parametrize("piece", [b"", b"\x82", b"\x00\x01x\x01y" * 3000], ids=["empty", "tiny", "large"])
async def test_headers_that_never_end_end_the_connection(tmp_path: Path, piece: bytes) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, _):
            stream = connection.next_stream()
            connection.in_headers = True
            await connection.write(frames.headers(stream, BLOCK, ends_headers=False))
            assert await cut_off(connection, frames.continuation(stream, piece) * 10) < 4_000_000
        await place.call()


async def test_headers_that_grow_in_decoding_are_refused(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, toll):
            stream, block = connection.next_stream(), bomb()
            first = frames.headers(stream, block[:16_000], ends_headers=False)
            await connection.write(first + frames.continuation(stream, block[16_000:], ends_headers=True))
            await until(lambda: toll.answered + toll.reset > 0 or not connection.is_open, what="it is refused")
            assert b"grpc-status: 0" not in connection.headers_of.get(stream, b"")
        await place.call()


async def test_calls_that_are_cancelled_at_once_end_the_connection(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, _):
            streams = [connection.next_stream() for _ in range(200)]
            await connection.write(b"".join(frames.headers(one, BLOCK) + frames.reset(one) for one in streams))
            await until(lambda: not connection.is_open, what="it is cut off")
            assert connection.went_away == ENHANCE_YOUR_CALM
        await place.call()


async def test_answers_that_are_not_taken_end_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_server, "_STALL", 0.5)
    async with attacked(tmp_path, ListenerLimits(connections=16, handshake=1.0), deadline=0.5) as place:
        async with connected(place, allowed=True) as (connection, _):
            await connection.write(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
            for _ in range(50):
                stream = connection.next_stream()
                await connection.write(
                    frames.headers(stream, BLOCK) + frames.data(stream, WHOLE_CALL, ends_stream=True)
                )
            await place.call()
            await until(lambda: not connection.is_open, what="it is cut off")
        await until(lambda: place.refused("too_slow") == 1, what="it is counted")
        await place.call()


async def test_a_message_that_comes_slowly_is_not_waited_for(tmp_path: Path) -> None:
    async with attacked(tmp_path, QUICK) as place, connected(place, allowed=True) as (connection, _):
        stream = connection.next_stream()
        await connection.write(frames.headers(stream, BLOCK) + frames.data(stream, b"\0\0"))
        await until(lambda: b"grpc-status: 4" in connection.headers_of.get(stream, b""), what="it is ended")
        await place.call()


@pytest.mark.parametrize("kind", ["slow-handshake", "slow-preface"])
async def test_a_beginning_that_comes_slowly_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    async with attacked(tmp_path, QUICK) as place:
        toll = Toll()
        attacking = asyncio.ensure_future(ATTACKS[kind](place.target(allowed=True), toll, time.monotonic() + 30))
        try:
            await until(lambda: toll.refused > 0, what="it is cut off")
            await place.call()
        finally:
            attacking.cancel()
        assert place.value("cloudgraft_connections", listener="autoscaler") <= 2


@pytest.mark.parametrize("kind", ["garbage", "garbage-after-preface", "half-closed"])
async def test_what_is_no_http2_harms_nobody_else(tmp_path: Path, kind: str) -> None:
    async with attacked(tmp_path) as place:
        toll = await attack(kind, place.aimed(seconds=0.3))
        assert toll.connected > 0
        await place.call()
        await until(lambda: _connections(place) == 0, what="all are gone")


async def test_data_for_a_call_that_is_over_is_not_taken(tmp_path: Path) -> None:
    async with attacked(tmp_path) as place:
        async with connected(place, allowed=True) as (connection, toll):
            stream = connection.next_stream()
            await connection.write(frames.headers(stream, BLOCK) + frames.data(stream, WHOLE_CALL, ends_stream=True))
            await connection.write(frames.data(stream, b"\0" * 10_000))
            await until(lambda: toll.reset > 0 or not connection.is_open, what="it is refused")
        await place.call()


def _connections(place: Place) -> float:
    return place.value("cloudgraft_connections", listener="autoscaler")
