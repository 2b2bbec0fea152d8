"""Connections that end, and how: cases 27 to 29 and 32; and drivers that take more than their share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2
from tests.conditions import until
from tests.dock.hub.black_hole import BlackHole
from tests.dock.hub.hub_rig import ACME, OTHER, QUICK, Rig, create, listing, rigged
from tests.dock.hub.ping_flood import PingFlood
from tests.dock.hub.raw_drivers import RawV0, RawV1, hello


async def works(rig: Rig, other: RawV1) -> None:
    """Another driver is served as ever."""
    task = asyncio.create_task(rig.hub.call(OTHER, create("elsewhere")))
    await other.created(await other.operation())
    async with asyncio.timeout(10):
        await task


async def begun(rig: Rig, driver: RawV0 | RawV1) -> asyncio.Task[object]:
    """A driver that is ready and has begun a create."""
    if isinstance(driver, RawV0):
        await driver.register()
        await until(lambda: rig.hub.info(ACME) is not None)
    else:
        await driver.connect()
    task: asyncio.Task[object] = asyncio.create_task(rig.hub.call(ACME, create()))
    await (driver.receive() if isinstance(driver, RawV0) else driver.operation())
    return task


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_27_a_half_close_ends_what_is_in_flight_with_an_open_outcome(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        waiting = await begun(rig, driver)
        rig.notified.clear()
        await driver.stream.done_writing()
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        assert (await driver.end())[0] is grpc.StatusCode.OK
        assert (rig.hub.drivers(), rig.notified) == ([], [ACME])


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_a_stream_that_is_cancelled_ends_what_is_in_flight(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig:
        async with kind(rig) as driver:
            waiting = await begun(rig, driver)
            driver.stream.cancel()
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        assert rig.hub.drivers() == []


async def test_drivers_that_leave_at_once_get_the_end_of_the_call() -> None:
    """A welcome that is still being written must not keep the call open for ever."""
    async with rigged() as rig:
        drivers = [RawV1(rig, identity=f"{number}") for number in range(40)]

        async def come_and_go(driver: RawV1) -> grpc.StatusCode:
            async with driver:
                await driver.send(hello(instance="same"))
                await driver.stream.done_writing()
                return (await driver.end())[0]

        codes = await asyncio.gather(*(come_and_go(driver) for driver in drivers))
        assert grpc.StatusCode.OK in codes
        await until(lambda: not rig.hub.drivers())


async def test_of_a_lost_connection_what_was_never_sent_was_certainly_not_done() -> None:
    async with rigged() as rig:
        async with RawV1(rig) as driver:
            await driver.connect(max_in_flight=1)
            sent = asyncio.create_task(rig.hub.call(ACME, create("m-1")))
            await driver.operation()
            queued = asyncio.create_task(rig.hub.call(ACME, create("m-2")))
            await until(lambda: rig.hub.drivers()[0].queued == 1)
        with pytest.raises(DeadlineError):
            await sent
        with pytest.raises(UnavailableError, match="not sent"):
            await queued


async def test_case_28_unregister_ends_what_is_in_flight_with_an_open_outcome() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        waiting = await begun(rig, driver)
        await driver.send(v0.DriverSide(operationType="unregister"))
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        assert (await driver.end())[0] is grpc.StatusCode.OK


async def test_case_28_a_driver_that_says_bye_may_still_bring_what_it_has_begun() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(max_in_flight=1)
        waiting = asyncio.create_task(rig.hub.call(ACME, create("m-1")))
        operation = await driver.operation()
        queued = asyncio.create_task(rig.hub.call(ACME, create("m-2")))
        await until(lambda: rig.hub.drivers()[0].queued == 1)
        await driver.send(v1.DriverMessage(bye=v1.Bye(reason="stopping")))
        with pytest.raises(UnavailableError, match="not sent"):
            await queued
        with pytest.raises(UnavailableError):
            await rig.hub.call(ACME, create("m-3"))
        assert rig.hub.drivers()[0].state == "draining"
        async with RawV1(rig) as successor:
            await successor.connect(instance="successor")
            assert [one.state for one in rig.hub.drivers()] == ["ready"]
            await driver.created(operation)
            assert isinstance(await waiting, Machine)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_29_a_black_hole_in_the_network_is_noticed(kind: type[RawV0 | RawV1]) -> None:
    settings = QUICK["v0" if kind is RawV0 else "v1"]
    async with rigged(settings) as rig, BlackHole(rig.port).listening() as network, kind(network.address) as driver:
        waiting = await begun(rig, driver)
        network.swallow()
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        await until(lambda: not rig.hub.drivers())


async def test_case_32_a_driver_that_floods_with_pings_is_cut_off_alone() -> None:
    async with rigged() as rig, RawV1(rig) as other:
        await other.connect(OTHER)
        async with PingFlood(rig.port) as flood:
            await flood.open_register()
            assert b"too_many_pings" in await flood.ping_until_told_to_stop()
        await works(rig, other)


async def test_heartbeats_go_both_ways_and_keep_a_connection() -> None:
    settings = HubSettings(heartbeat=0.4)
    async with rigged(settings) as rig, RawV1(rig) as driver:
        await driver.connect()
        begun_at = time.monotonic()
        while time.monotonic() - begun_at < settings.silence + 0.1:
            await driver.word("heartbeat")
            await driver.beat()
        assert rig.hub.info(ACME) is not None
        assert (await driver.end())[0] is grpc.StatusCode.UNAVAILABLE  # silent from now on


async def test_a_hub_that_was_suspended_ends_no_session() -> None:
    """Its process was stopped, or its machine was: the clock has gone on, and nothing could be heard."""
    ahead = [0.0]
    async with (
        rigged(HubSettings(heartbeat=2.0), clock=lambda: time.monotonic() + ahead[0]) as rig,
        RawV1(rig) as driver,
    ):
        await driver.connect()
        ahead[0] = 3600.0
        await driver.word("heartbeat")
        await driver.beat()
        await driver.word("heartbeat")
        assert rig.hub.info(ACME) is not None


async def test_other_clocks_do_not_matter() -> None:
    """Nothing that is sent is a date, and the dates that come in decide nothing."""
    async with rigged(clock=lambda: time.monotonic() - 1e9) as rig, RawV1(rig) as driver:
        await driver.connect()
        for seconds in (-62135596800, 253402300799):  # the first and the last second that there are
            task = asyncio.create_task(rig.hub.call(ACME, listing()))
            machine = driver_pb2.Machine(name="m", machine_id="1")
            machine.created_at.seconds = seconds
            await driver.listed(await driver.operation(), machine)
            assert len(await task) == 1  # type: ignore[arg-type]  # a list has a length
        assert rig.hub.drivers()[0].silent_for < timedelta(seconds=30)


async def test_a_flooding_driver_is_read_slowly_and_delays_no_other() -> None:
    settings = HubSettings(heartbeat=30, unasked=50, unasked_per_second=20)
    async with rigged(settings) as rig, RawV1(rig) as driver, RawV1(rig) as other:
        await driver.connect()
        await other.connect(OTHER)
        nobodys = v1.Result(id=1, status=v1.Status(message="x" * 10_000))
        message = v1.DriverMessage(result=nobodys).SerializeToString()

        async def flood() -> None:
            while True:
                await driver.stream.write(message)

        flooding = asyncio.create_task(flood())
        for _ in range(20):
            await works(rig, other)
        assert not flooding.done()
        assert {one.info.key for one in rig.hub.drivers()} == {ACME, OTHER}
        flooding.cancel()  # and with the write its whole stream
        await asyncio.gather(flooding, return_exceptions=True)


async def test_a_driver_that_never_reads_is_cut_off_and_delays_no_other() -> None:
    settings = HubSettings(heartbeat=0.5, outbox=20)
    async with rigged(settings) as rig, RawV1(rig) as driver, RawV1(rig, identity="other") as other:
        await driver.connect()
        await other.connect(OTHER)
        big = "x" * 1_000_000
        tasks, refused = [], 0
        for number in range(60):
            task = asyncio.create_task(rig.hub.call(ACME, create(f"m-{number}", user_data=big)))
            tasks.append(task)
            await asyncio.sleep(0)
        await works(rig, other)
        gone = asyncio.create_task(until(lambda: rig.hub.info(ACME) is None))
        while not gone.done():  # it gives signs of life all the time, but it does not read
            await driver.beat()
            await other.beat()
            await asyncio.sleep(0.05)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        refused = sum(isinstance(outcome, UnavailableError) for outcome in outcomes)
        unknown = sum(isinstance(outcome, DeadlineError) for outcome in outcomes)
        assert refused + unknown == 60
        assert refused >= 20
        assert unknown >= 1
        await works(rig, other)


async def test_an_outbox_is_bounded_by_bytes_too() -> None:
    settings = HubSettings(heartbeat=30, outbox_bytes=3_000_000)
    async with rigged(settings) as rig, RawV1(rig) as driver:
        await driver.connect(max_in_flight=1)
        first = asyncio.create_task(rig.hub.call(ACME, create("m-0")))
        await driver.operation()
        big = [
            asyncio.create_task(rig.hub.call(ACME, create(f"m-{n}", user_data="x" * 1_000_000))) for n in range(1, 5)
        ]
        await until(lambda: sum(task.done() for task in big) == 2)
        assert rig.hub.drivers()[0].queued == 2
        for task in (first, *big):
            task.cancel()
        await asyncio.gather(first, *big, return_exceptions=True)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_a_message_of_50_mb_ends_its_connection_and_no_other(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver, RawV1(rig, identity="other") as other:
        await other.connect(OTHER)
        waiting = await begun(rig, driver)
        await driver.send_bytes(b"x" * 50_000_000)
        with pytest.raises(DeadlineError, match="unknown"):
            await waiting
        assert (await driver.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await works(rig, other)


async def test_a_message_that_is_too_long_is_malformed_even_where_the_port_lets_it_in() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect()
        session = next(iter(rig.hub._sessions))
        session._settings = replace(session._settings, max_message_bytes=100)
        await driver.send_bytes(b"x" * 101)
        await until(lambda: rig.hub.drivers()[0].malformed == 1)


async def test_a_hub_that_closes_lets_what_is_in_flight_end_and_takes_nothing_new() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(OTHER)
        waiting = asyncio.create_task(rig.hub.call(OTHER, create()))
        operation = await driver.operation()
        closing = asyncio.create_task(rig.hub.close(30.0))
        assert (await driver.word("drain")).drain.grace.seconds == 30
        with pytest.raises(UnavailableError):
            await rig.hub.call(OTHER, create("m-2"))
        async with RawV1(rig, identity="late") as late:
            await late.send(hello())
            assert (await late.receive()).WhichOneof("message") == "reject"
        await driver.created(operation)
        assert isinstance(await waiting, Machine)
        await closing  # with the last answer: it does not wait for its time to pass
        assert (await driver.end())[0] is grpc.StatusCode.UNAVAILABLE
        assert rig.hub.drivers() == []


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_what_does_not_end_before_the_hub_closes_has_an_open_outcome(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        lost = await begun(rig, driver)
        await rig.hub.close(0.2)
        with pytest.raises(DeadlineError, match="unknown"):
            await lost
        assert rig.hub.drivers() == []


async def test_changes_of_classes_reach_a_driver_of_v1_and_skip_one_of_v0() -> None:
    async with rigged() as rig, RawV1(rig) as driver, RawV0(rig) as old:
        await driver.connect(OTHER)
        await old.register()
        await until(lambda: rig.hub.info(ACME) is not None)
        for key in (ACME, OTHER):
            rig.classes.callbacks[0](key, ["small"], ["credentials"])
        changed = (await driver.word("changed")).changed
        assert (list(changed.machine_classes), list(changed.secrets)) == (["small"], ["credentials"])
        task = asyncio.create_task(rig.hub.call(ACME, listing()))
        await old.listed((await old.receive()).operationID)
        await task


async def test_a_failing_listener_disturbs_no_driver() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        rig.hub._listeners.insert(0, lambda _: 1 / 0)  # type: ignore[arg-type]  # it never returns
        await driver.connect()
        assert rig.notified == [ACME]
