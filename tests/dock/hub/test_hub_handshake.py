"""How drivers come in: cases 1 to 9, and the limits of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import grpc
import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.driver import DriverTraits, Ownership
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.wire.driver import traits_to_pb
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, OTHER, QUICK, Rig, create, listing, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1, creation, hello, registration


async def is_ready(rig: Rig, key: Key = ACME) -> None:
    await until(lambda: rig.hub.info(key) is not None, what="a driver is ready")


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_01_a_driver_that_never_says_who_it_is_is_sent_away(kind: type[RawV0 | RawV1]) -> None:
    async with rigged(HubSettings(handshake=0.1)) as rig, kind(rig) as driver:
        code, text = await driver.end()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "did not introduce itself" in text
        assert rig.hub.drivers() == []


async def test_case_02_a_first_reply_without_register_resp_is_refused_and_the_hub_goes_on() -> None:
    async with rigged() as rig:
        async with RawV0(rig) as driver:
            await driver.receive()
            await driver.send(v0.DriverSide(operationID=1, operationType="register"))
            assert (await driver.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        async with RawV1(rig) as other:
            await other.beat()
            assert (await other.receive()).reject.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
            assert (await other.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        async with RawV0(rig) as good:
            await good.register()
            await is_ready(rig)


async def test_case_02_a_first_message_that_is_no_message_is_refused() -> None:
    async with rigged() as rig:
        for kind in (RawV0, RawV1):
            async with kind(rig) as driver:
                await driver.send_bytes(b"\xff\xff\xff")
                assert (await driver.end())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_case_03_number_and_type_of_the_register_reply_do_not_matter_as_in_2018() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await driver.receive()
        said = registration()
        said.operationID, said.operationType = 77, "create"
        await driver.send(said)
        await is_ready(rig)
        task = asyncio.create_task(rig.hub.call(ACME, create()))
        operation = await driver.receive()
        assert operation.operationID == 1  # numbers begin anew: the handshake's own does not count
        await driver.created(operation.operationID)
        await task


@pytest.mark.parametrize(
    "key",
    [
        Key(kind="", api_version="machine.example/v1"),
        Key(kind="A\nB", api_version="machine.example/v1"),
        Key(kind="A", api_version=""),
        Key(kind="A" * 300, api_version="v1"),
    ],
)
async def test_case_04_an_empty_or_impossible_kind_is_refused(key: Key) -> None:
    async with rigged() as rig:
        async with RawV0(rig) as driver:
            await driver.register(key)
            assert (await driver.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        async with RawV1(rig) as other:
            await other.send(hello(key))
            assert (await other.receive()).WhichOneof("message") == "reject"
        assert rig.hub.drivers() == []


async def test_another_version_of_the_protocol_and_wrong_traits_are_refused() -> None:
    async with rigged() as rig:
        for wrong in (
            v1.Hello(protocol=2, kind="A", api_version="v1"),
            v1.Hello(protocol=1, kind="A", api_version="v1", traits=driver_pb2.DescribeResponse(ownership="perhaps")),
        ):
            async with RawV1(rig) as driver:
                await driver.send(v1.DriverMessage(hello=wrong))
                assert (await driver.receive()).reject.code == 3


async def test_case_05_a_second_driver_of_a_key_is_refused_while_the_first_one_lives() -> None:
    async with rigged() as rig, RawV1(rig) as first:
        await first.connect(instance="first")
        async with RawV1(rig) as second:
            await second.send(hello(instance="second"))
            await first.word("heartbeat")  # it is asked for a sign of life
            await first.beat()
            reject = (await second.receive()).reject
            assert reject.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
            assert reject.retry_after.seconds > 0
            assert (await second.end())[0] is grpc.StatusCode.ALREADY_EXISTS
        task = asyncio.create_task(rig.hub.call(ACME, create()))
        await first.created(await first.operation())
        await task


async def test_case_05_in_v0_the_first_driver_of_a_key_keeps_its_place() -> None:
    async with rigged() as rig, RawV0(rig) as first:
        await first.register()
        await is_ready(rig)
        for second in (RawV0(rig), RawV0(rig, path="/infra.Infragrpc/Register")):
            async with second:
                await second.register()
                code, text = await second.end()
                assert code is grpc.StatusCode.ALREADY_EXISTS
                assert "already registered" in text
        await first.send(v0.DriverSide(operationType="unregister"))
        await until(lambda: rig.hub.info(ACME) is None)
        async with RawV0(rig) as third:
            await third.register()
            await is_ready(rig)


async def take_place(rig: Rig) -> None:
    """Comes again while the holder counts as alive: a beat that it sent before it froze may be read only now."""
    while True:
        async with RawV1(rig) as newcomer:
            await newcomer.send(hello(instance="newcomer"))
            answer = await newcomer.receive()
            if answer.WhichOneof("message") == "welcome":
                return
            assert answer.reject.code == grpc.StatusCode.ALREADY_EXISTS.value[0]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("protocol", ["v0", "v1"])
async def test_case_06_a_frozen_holder_is_noticed_and_its_place_goes_to_the_newcomer(protocol: str) -> None:
    """v1 by heartbeats, within three of them; v0 by HTTP/2's keepalive."""
    async with rigged(QUICK[protocol]) as rig:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.dock.hub.silent_driver", rig.address, protocol
        )
        try:
            await until(lambda: rig.hub.info(ACME) is not None, what="the process has started", seconds=45)
            process.send_signal(signal.SIGSTOP)
            frozen_at = time.monotonic()
            waiting = asyncio.create_task(rig.hub.call(ACME, create()))
            if protocol == "v1":
                await take_place(rig)
            with pytest.raises(Exception, match=r"unknown|not sent"):
                await waiting
            assert time.monotonic() - frozen_at < 30.0  # seconds, not minutes; a busy machine is granted some
            await until(lambda: all(one.info.instance_id != "lonely" for one in rig.hub.drivers()))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()


async def test_case_07_the_same_process_takes_its_own_place_and_the_late_end_of_the_old_one_does_no_harm() -> None:
    async with rigged() as rig, RawV1(rig) as old:
        await old.connect(instance="same")
        lost = asyncio.create_task(rig.hub.call(ACME, create("m-1")))
        operation = await old.operation()
        async with RawV1(rig) as new:
            await new.connect(instance="same")
            with pytest.raises(Exception, match="unknown"):
                await lost
            assert (await old.end())[0] is grpc.StatusCode.UNAVAILABLE
            old.stream.cancel()
            await old.channel.close()
            task = asyncio.create_task(rig.hub.call(ACME, create("m-2")))
            await new.created(await new.operation())
            await task
            assert len(rig.hub.drivers()) == 1
            assert operation.create.name == "m-1"


async def test_case_07_another_identity_cannot_take_a_place_by_the_name_of_a_process() -> None:
    async with rigged() as rig, RawV1(rig, identity="a") as old, RawV1(rig, identity="b") as new:
        await old.connect(instance="same")
        await new.send(hello(instance="same"))
        await old.word("heartbeat")
        await old.beat()
        assert (await new.receive()).reject.code == grpc.StatusCode.ALREADY_EXISTS.value[0]


async def refused(driver: RawV0 | RawV1) -> int:
    """The code that it is refused with. The one that is taken is asked whether it lives, says so, and never ends."""
    if isinstance(driver, RawV0):
        code, _ = await driver.end()
        number: int = code.value[0]
        return number
    while (word := await driver.receive()).WhichOneof("message") != "reject":
        await driver.beat()
    return word.reject.code


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_08_of_two_registrations_at_one_instant_one_is_taken(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, contextlib.AsyncExitStack() as stack:
        drivers = [kind(rig, identity=f"{number}") for number in range(5)]
        for driver in drivers:
            await stack.enter_async_context(driver)
        firsts = [registration() if kind is RawV0 else hello(instance=f"{number}") for number in range(5)]
        words = [first.SerializeToString() for first in firsts]
        await asyncio.gather(*(driver.send_bytes(data) for driver, data in zip(drivers, words, strict=True)))
        fates = [asyncio.create_task(refused(driver)) for driver in drivers]
        await until(lambda: sum(fate.done() for fate in fates) == 4)
        codes = [fate.result() for fate in fates if fate.done()]
        assert codes == [grpc.StatusCode.ALREADY_EXISTS.value[0]] * 4
        assert rig.hub.counts()["connected"] == 1
        for fate in fates:
            fate.cancel()
        await asyncio.gather(*fates, return_exceptions=True)


@pytest.mark.parametrize("service", ["service.Servicegrpc", "infra.Infragrpc"])
async def test_case_09_both_names_of_2018_are_one_service(service: str) -> None:
    async with rigged() as rig, RawV0(rig, path=f"/{service}/Register") as driver:
        rig.classes.add("small", ACME, json='{"kind": "AcmeMachineClass"}')
        await driver.register()
        await is_ready(rig)
        task = asyncio.create_task(rig.hub.call(ACME, listing()))
        operation = await driver.receive()
        meta = operation.operationparams.machineClassMetaData
        got = await driver.unary(f"/{service}/GetMachineClass", meta, v0.MachineClass)
        assert json.loads(got.data)["kind"] == "AcmeMachineClass"
        await driver.listed(operation.operationID)
        assert await task == []


async def test_a_stranger_is_refused_and_a_driver_may_register_only_what_it_may() -> None:
    async with rigged() as rig:
        rig.access.strangers.add("nobody")
        rig.access.keys["acme"] = {ACME}
        async with RawV1(rig, identity="nobody") as stranger:
            assert (await stranger.end())[0] is grpc.StatusCode.UNAUTHENTICATED
        async with RawV1(rig, identity="acme") as driver:
            await driver.send(hello(OTHER))
            assert (await driver.receive()).reject.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        async with RawV0(rig, identity="acme") as driver0:
            await driver0.register(OTHER)
            assert (await driver0.end())[0] is grpc.StatusCode.PERMISSION_DENIED
        assert rig.hub.drivers() == []


async def test_an_identity_that_is_removed_is_cut_off_at_once() -> None:
    async with rigged() as rig, RawV1(rig, identity="a") as gone, RawV1(rig, identity="b") as stays:
        await gone.connect(ACME)
        await stays.connect(OTHER)
        waiting = asyncio.create_task(rig.hub.call(ACME, create()))
        await gone.operation()
        rig.access.remove("a")
        with pytest.raises(Exception, match="unknown"):
            await waiting
        assert (await gone.end())[0] is grpc.StatusCode.PERMISSION_DENIED
        assert [one.identity for one in rig.hub.drivers()] == ["b"]


async def test_a_drivers_description_of_itself_is_reported() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        traits = traits_to_pb(DriverTraits(ownership=Ownership.NAME))
        welcome = await driver.connect(
            name="acme", version="1.2", max_in_flight=7, capabilities=["shapes"], traits=traits
        )
        info = rig.hub.info(ACME)
        assert info is not None
        assert (info.name, info.version, info.max_in_flight, info.protocol) == ("acme", "1.2", 7, "v1")
        assert info.traits == DriverTraits(ownership=Ownership.NAME)
        report = rig.hub.drivers()[0]
        assert (report.session_id, report.state, report.in_flight) == (welcome.session_id, "ready", 0)
        assert rig.notified == [ACME]
        assert welcome.heartbeat.seconds == 30
        assert welcome.max_message_bytes == 16 * 1024 * 1024


async def test_results_of_an_earlier_connection_notify_and_are_acknowledged() -> None:
    """Of this hub's own life, and of another one's."""
    async with rigged() as rig:
        async with RawV1(rig) as first:
            await first.connect()
            waiting = asyncio.create_task(rig.hub.call(ACME, create()))
            operation = await first.operation()
        with pytest.raises(Exception, match="unknown"):
            await waiting
        rig.notified.clear()
        foreign = v1.Result(id=7, hub_id="another life")
        async with RawV1(rig) as second:
            await second.connect(results=[creation(operation), foreign])
            acknowledged = (await second.word("acknowledge")).acknowledge
            assert sorted(acknowledged.ids) == sorted([operation.id, 7])
            assert rig.notified == [ACME, ACME]  # connected, and late results
            assert rig.hub.counts()["late"] == 1


async def test_ten_thousand_registrations_of_one_identity_delay_no_other() -> None:
    """In small: the limits are what is tested, and the hub stays as it was for others."""
    settings = HubSettings(
        heartbeat=30.0, registrations=20, registrations_per_second=0.001, max_sessions_per_identity=5
    )
    async with rigged(settings) as rig, RawV1(rig, identity="good") as good:
        await good.connect(OTHER)
        open_now = [RawV1(rig, identity="greedy") for _ in range(5)]
        for number, driver in enumerate(open_now):
            await driver.connect(Key(kind=f"K{number}", api_version="v1"))
        for _ in range(60):
            async with RawV1(rig, identity="greedy") as driver:
                assert (await driver.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(rig.hub.drivers()) == 6
        task = asyncio.create_task(rig.hub.call(OTHER, create()))
        await good.created(await good.operation())
        await task
        for driver in open_now:
            driver.stream.cancel()
            await driver.channel.close()


@pytest.mark.thorough
@pytest.mark.timeout(240)
async def test_ten_thousand_registrations_in_a_row_leave_nothing_behind() -> None:
    """With the limits that a hub has by itself: a thousand are taken, each in its predecessor's place."""
    unhurried = HubSettings(heartbeat=600.0)  # the good driver sends no heartbeat, however long this takes
    async with rigged(unhurried) as rig, RawV1(rig, identity="good") as good:
        await good.connect(OTHER)
        channel = RawV1(rig, identity="greedy")
        open_stream: Any = channel.channel.stream_stream(RawV1.path)
        codes: Counter[grpc.StatusCode] = Counter()

        async def register(number: int) -> None:
            stream = open_stream(metadata=(("x-identity", "greedy"),))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stream.write(hello(instance="same").SerializeToString())
                await stream.done_writing()
                while await stream.read() is not grpc.aio.EOF:
                    pass
            codes[await stream.code()] += 1

        for start in range(0, 10_000, 100):
            await asyncio.gather(*(register(number) for number in range(start, start + 100)))
        assert codes.total() == 10_000
        assert codes[grpc.StatusCode.RESOURCE_EXHAUSTED] > 5_000
        task = asyncio.create_task(rig.hub.call(OTHER, create()))
        await good.created(await good.operation())
        await task
        await until(lambda: [one.info.key for one in rig.hub.drivers()] == [OTHER])
        channel.stream.cancel()
        await channel.channel.close()


async def test_no_operation_goes_before_the_welcome() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        calls: list[asyncio.Task[object]] = []
        rig.hub.listen(lambda key: calls.append(asyncio.create_task(rig.hub.call(key, create()))))
        await driver.connect()  # which looks at the first message
        await driver.created(await driver.operation())
        await calls[0]
        driver.stream.cancel()
        await until(lambda: len(calls) == 2)
        with pytest.raises(UnavailableError):
            await calls[1]


async def test_the_hub_takes_only_so_many_drivers() -> None:
    async with rigged(HubSettings(max_sessions=1)) as rig, RawV1(rig) as first:
        await first.connect()
        async with RawV1(rig, identity="b") as second:
            reject = (await second.receive()).reject
            assert reject.retry_after.seconds > 0
            assert "takes no more" in reject.message
            assert (await second.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (rig.hub.counts()["connected"], rig.hub.counts()["refused"]) == (1, 1)


async def test_without_a_driver_nothing_is_done_and_that_is_said_at_once() -> None:
    async with rigged() as rig:
        with pytest.raises(UnavailableError, match="nothing was done"):
            await rig.hub.call(ACME, create())
