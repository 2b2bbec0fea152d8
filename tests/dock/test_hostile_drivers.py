"""Drivers of v0 that take more than their share, over real sockets: no other driver notices, and nothing is guessed.

Those of v1, and all of them at once, are in ``tests/dock/hub``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import Any

import grpc
import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, OTHER, Rig, create, listing, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1, hello, registration


async def works(rig: Rig, other: RawV1) -> None:
    """Another driver is served as ever."""
    task = asyncio.create_task(rig.hub.call(OTHER, create("elsewhere")))
    await other.created(await other.operation())
    async with asyncio.timeout(10):
        await task


async def ready(rig: Rig, driver: RawV0) -> None:
    await driver.register()
    await until(lambda: rig.hub.info(ACME) is not None)


async def test_unsolicited_answers_are_read_slowly() -> None:
    settings = HubSettings(heartbeat=30, unasked=50, unasked_per_second=20)
    async with rigged(settings) as rig, RawV0(rig) as driver, RawV1(rig, identity="other") as other:
        await other.connect(OTHER)
        await ready(rig, driver)
        answer = v0.DriverSide(operationID=7, createresponse=v0.DriverSide.createResp(error="x" * 10_000))
        data = answer.SerializeToString()

        async def flood() -> None:
            while True:
                await driver.stream.write(data)

        flooding = asyncio.create_task(flood())
        for _ in range(20):
            await works(rig, other)
        assert not flooding.done()
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)


async def test_repeated_malformed_messages_end_the_connection_with_unknown_outcome() -> None:
    async with rigged() as rig, RawV0(rig) as driver, RawV1(rig, identity="other") as other:
        await other.connect(OTHER)
        await ready(rig, driver)
        waiting = asyncio.create_task(rig.hub.call(ACME, create()))
        await driver.receive()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it may be cut off before the last
            for _ in range(1000):
                await driver.send(registration())
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        assert (await driver.end())[0] is not grpc.StatusCode.OK
        assert rig.hub.info(ACME) is None
        await works(rig, other)


async def test_one_that_never_reads_is_cut_off_and_what_it_may_have_got_is_unknown() -> None:
    settings = HubSettings(heartbeat=0.5, outbox=20)
    async with rigged(settings) as rig, RawV0(rig) as driver, RawV1(rig, identity="other") as other:
        await other.connect(OTHER)
        await ready(rig, driver)
        long = "x" * 1_000_000
        tasks = [
            asyncio.create_task(rig.hub.call(ACME, create(f"{number}-{long}", at_once=60))) for number in range(60)
        ]
        gone = asyncio.create_task(until(lambda: rig.hub.info(ACME) is None))
        while not gone.done():
            await other.beat()
            await asyncio.sleep(0.05)
        outcomes = Counter(type(each) for each in await asyncio.gather(*tasks, return_exceptions=True))
        assert outcomes[UnavailableError] + outcomes[DeadlineError] == 60
        assert outcomes[UnavailableError] >= 20
        assert outcomes[DeadlineError] >= 1
        await works(rig, other)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_a_first_message_of_50_mb_is_not_taken(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver, RawV1(rig, identity="other") as other:
        await other.connect(OTHER)
        await driver.send_bytes(hello().SerializeToString() + b"x" * 50_000_000)
        assert (await driver.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert rig.hub.info(ACME) is None
        await works(rig, other)


@pytest.mark.thorough
@pytest.mark.timeout(240)
async def test_ten_thousand_registrations_as_in_2018_leave_nothing_behind() -> None:
    async with rigged() as rig, RawV1(rig, identity="good") as good, RawV0(rig, identity="greedy") as own:
        await good.connect(OTHER)
        open_stream: Any = own.channel.stream_stream(RawV0.path)
        codes: Counter[grpc.StatusCode] = Counter()

        async def register() -> None:
            stream = open_stream(metadata=own.metadata)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await stream.read()
                await stream.write(registration().SerializeToString())
                await stream.done_writing()
                while await stream.read() is not grpc.aio.EOF:
                    pass
            codes[await stream.code()] += 1

        for _ in range(100):
            await asyncio.gather(*(register() for _ in range(100)))
        assert codes.total() == 10_000
        assert codes[grpc.StatusCode.RESOURCE_EXHAUSTED] > 5_000
        await works(rig, good)
        await until(lambda: [one.info.key for one in rig.hub.drivers()] == [OTHER])


async def test_clocks_that_are_years_apart_do_not_matter() -> None:
    """v0 has no dates at all; the hub's own clock is only ever compared with itself, and may begin anywhere."""
    for skew in (-1e9, 1e9):
        async with rigged(clock=lambda skew=skew: time.monotonic() + skew) as rig, RawV0(rig) as driver:  # type: ignore[misc]  # a default is what binds it
            await ready(rig, driver)
            task = asyncio.create_task(rig.hub.call(ACME, listing()))
            await driver.listed((await driver.receive()).operationID, ("acme:///m-1", "m-1"))
            assert len(await task) == 1  # type: ignore[arg-type]  # a list has a length
