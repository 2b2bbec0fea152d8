"""Drivers of 2018 handle one operation after the other, and no change is sent twice: cases 54 to 57.

The peers here behave as the client of 2018 does: they receive, work, answer, and only then receive again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.dock.hub.outbox import Lane, Outbox
from cloudgraft.dock.protocol.messages import Answer, Operation
from cloudgraft.sdk.common.event_loop import within
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, DeadlineError, InternalError, UnavailableError
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, Rig, create, delete, listing, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1

SERVICES = ["service.Servicegrpc", "infra.Infragrpc"]


def call(rig: Rig, operation: Operation) -> asyncio.Task[Answer]:
    return asyncio.create_task(rig.hub.call(ACME, operation))


async def ended(task: asyncio.Task[Answer]) -> CloudgraftError:
    with pytest.raises(CloudgraftError) as caught:
        await task
    return caught.value


async def registered(driver: RawV0, rig: Rig) -> None:
    await driver.register()
    await until(lambda: rig.hub.info(ACME) is not None)


class Peer:
    """A driver of either protocol that answers when it is told to."""

    def __init__(self, driver: RawV0 | RawV1) -> None:
        self.driver = driver

    async def begin(self, rig: Rig, *, at_once: int = 0) -> None:
        if isinstance(self.driver, RawV0):
            await registered(self.driver, rig)
        else:
            await self.driver.connect(max_in_flight=at_once)

    async def receive(self) -> v0.MCMside | v1.Operation:
        return await (self.driver.receive() if isinstance(self.driver, RawV0) else self.driver.operation())

    async def created(self, operation: v0.MCMside | v1.Operation, machine_id: str) -> None:
        if isinstance(self.driver, RawV0) and isinstance(operation, v0.MCMside):
            await self.driver.created(operation.operationID, machine_id)
        elif isinstance(self.driver, RawV1) and isinstance(operation, v1.Operation):
            await self.driver.created(operation, machine_id)


# -- 54: one operation at a time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
async def test_case_54_a_driver_of_2018_gets_one_operation_at_a_time_and_lists_take_turns(service: str) -> None:
    async with rigged() as rig, RawV0(rig, path=f"/{service}/Register") as driver:
        await registered(driver, rig)
        tasks = [call(rig, create(f"m-{number}")) for number in range(4)]
        first = await driver.receive()
        tasks += [call(rig, listing()), call(rig, delete("a")), call(rig, delete("b"))]
        await until(lambda: rig.hub.drivers()[0].queued == 6)
        assert rig.hub.drivers()[0].in_flight == 1
        await driver.created(first.operationID, "id-0")
        order = []
        for _ in range(6):
            operation = await driver.receive()
            assert rig.hub.drivers()[0].in_flight == 1
            order.append(operation.operationType)
            if operation.operationType == "create":
                await driver.created(operation.operationID, f"id-{operation.operationparams.machineName}")
            elif operation.operationType == "list":
                await driver.listed(operation.operationID)
            else:
                await driver.deleted(operation.operationID)
        assert order == ["list", "delete", "create", "delete", "create", "create"]
        await asyncio.gather(*tasks)


async def test_lanes_take_turns_and_no_create_is_starved() -> None:
    outbox = Outbox(limit=100, limit_bytes=1000)
    for number in range(3):
        outbox.put(number, b"c", Lane.CREATE)
        outbox.put(10 + number, b"r", Lane.READ)
    sent: list[bytes] = []
    for _ in range(3):
        outbox.put(100 + len(sent), b"r", Lane.READ)  # however many reads come
        sent += [(await outbox.next())[1], (await outbox.next())[1]]
    assert sent == [b"r", b"c"] * 3
    outbox.remove(102)
    outbox.remove(102)
    assert len(outbox) == 2


async def test_a_cloud_can_say_that_its_driver_of_2018_takes_more_at_once() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        tasks = [call(rig, create(f"m-{number}", at_once=2)) for number in range(3)]
        held = [await driver.receive(), await driver.receive()]
        assert (rig.hub.drivers()[0].in_flight, rig.hub.drivers()[0].queued) == (2, 1)
        for operation in held:
            await driver.created(operation.operationID, f"id-{operation.operationID}")
        await driver.created((await driver.receive()).operationID, "id")
        await asyncio.gather(*tasks)


# -- 55: time in the queue ---------------------------------------------------------------------------------------------


def late() -> CloudgraftError:
    return DeadlineError("the timeout around the call")


def failed(error: Exception) -> CloudgraftError:
    raise error


async def past(seconds: float) -> None:
    """Returns when more time than that has passed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await until(lambda: loop.time() > end)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_55_a_deadline_begins_when_the_operation_is_sent(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        peer = Peer(driver)
        await peer.begin(rig, at_once=1)
        slow = call(rig, create("slow"))
        first = await peer.receive()
        waiting = call(rig, create("quick", seconds=0.2))
        await past(0.3)
        assert not waiting.done()
        await peer.created(first, "id-slow")
        await peer.receive()  # from here on its time runs
        assert "did not answer in 0.2 s" in (await ended(waiting)).message
        await slow


async def test_case_55_the_engines_own_timeout_does_not_count_the_time_in_the_queue() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        slow = call(rig, create("slow"))
        first = await driver.receive()
        waiting = asyncio.create_task(
            within(
                1.0,  # and around it another one, as a driver that calls drivers has
                lambda: within(1.0, lambda: rig.hub.call(ACME, listing()), late=late, failed=failed),
                late=late,
                failed=failed,
            )
        )
        await past(1.1)
        assert not waiting.done()
        await driver.created(first.operationID)
        await driver.listed((await driver.receive()).operationID)
        assert await waiting == []
        await slow


async def test_a_timeout_around_a_call_that_does_not_wait_is_what_it_was() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlineError):
        await within(0.01, lambda: within(10, hang, late=late, failed=failed), late=late, failed=failed)


async def test_case_55_an_operation_that_was_given_up_still_occupies_a_driver_of_2018() -> None:
    """It cannot be cancelled. What is sent meanwhile would wait inside the driver while its deadline runs."""
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = call(rig, create("m-1", seconds=0.05))
        operation = await driver.receive()
        assert isinstance(await ended(making), DeadlineError)
        looking = call(rig, listing())
        await until(lambda: rig.hub.drivers()[0].queued_for > timedelta(0), what="the report shows that it waits")
        assert (rig.hub.drivers()[0].in_flight, rig.hub.drivers()[0].queued) == (1, 1)
        await driver.created(operation.operationID, "late")
        await driver.listed((await driver.receive()).operationID, ("late", "m-1"))
        assert await looking == [Machine(name="m-1", machine_id="late", provider_id="late")]
        assert rig.hub.counts()["late"] == 1
        assert rig.hub.drivers()[0].queued_for == timedelta(0)


async def test_case_55_what_waits_for_too_long_was_not_sent_and_a_lost_answer_blocks_nothing_for_ever() -> None:
    async with rigged(HubSettings(heartbeat=30, queue=0.2, lost=0.6)) as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = call(rig, create("m-1", seconds=0.05))
        await driver.receive()
        assert isinstance(await ended(making), DeadlineError)
        error = await ended(call(rig, listing()))
        assert isinstance(error, UnavailableError)
        assert "was not sent, and nothing was done" in error.message

        async def is_listed() -> bool:
            looking = call(rig, listing())
            await asyncio.wait([looking], timeout=0.3)
            return looking.done() and rig.hub.drivers()[0].in_flight == 0

        async def answer() -> None:
            await driver.listed((await driver.receive()).operationID)

        answering = asyncio.create_task(answer())
        await until(is_listed, what="the driver is asked again")
        await answering


# -- 56: an operation under way is not repeated ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_56_a_create_that_is_not_answered_is_not_sent_again(kind: type[RawV0 | RawV1]) -> None:
    """The second caller gets the answer to the first message."""
    async with rigged() as rig, kind(rig) as driver:
        peer = Peer(driver)
        await peer.begin(rig)
        making = call(rig, create("m-1", seconds=0.05, at_once=5))
        operation = await peer.receive()
        assert isinstance(await ended(making), DeadlineError)
        again = call(rig, create("m-1"))
        other = call(rig, create("m-2"))
        second = await peer.receive()
        name = second.operationparams.machineName if isinstance(second, v0.MCMside) else second.create.name
        assert name == "m-2", "no second message for m-1"
        await peer.created(operation, "first")
        made = await again
        assert isinstance(made, Machine)
        assert made.machine_id == "first"
        assert "late" not in rig.hub.counts(), "its caller got it"
        await peer.created(second, "second")
        await other
        assert rig.hub.drivers()[0].in_flight == 0


async def test_case_56_a_second_caller_also_has_a_deadline_and_the_third_gets_the_answer() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        number = 0
        for _ in range(2):
            making = call(rig, create("m-1", seconds=0.05))
            number = number or (await driver.receive()).operationID
            assert isinstance(await ended(making), DeadlineError)
        third = call(rig, create("m-1"))
        await until(lambda: rig.hub.drivers()[0].in_flight == 1)
        await driver.created(number, error="InsufficientInstanceCapacity: none", provider_id="Error")
        error = await ended(third)
        assert (error.slug, error.is_final) == ("out_of_stock", True)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_56_a_machine_that_was_made_late_is_the_answer_to_a_second_create(kind: type[RawV0 | RawV1]) -> None:
    """Lists may not show it yet: a second message would make a second machine."""
    async with rigged() as rig, kind(rig) as driver:
        peer = Peer(driver)
        await peer.begin(rig)
        making = call(rig, create("m-1", seconds=0.05))
        operation = await peer.receive()
        assert isinstance(await ended(making), DeadlineError)
        rig.notified.clear()
        await peer.created(operation, "late")
        await until(lambda: rig.notified == [ACME])
        made = await rig.hub.call(ACME, create("m-1"))
        assert isinstance(made, Machine)
        assert made.machine_id == "late"


async def test_case_56_a_create_that_failed_late_is_sent_again() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = call(rig, create("m-1", seconds=0.05))
        operation = await driver.receive()
        assert isinstance(await ended(making), DeadlineError)
        rig.notified.clear()
        await driver.created(operation.operationID, "Error", error="no")
        await until(lambda: rig.notified == [ACME])
        again = call(rig, create("m-1"))
        await driver.created((await driver.receive()).operationID, "second")
        await again


async def test_case_56_a_delete_that_is_not_answered_is_not_sent_again() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect()
        removing = call(rig, delete("a", seconds=0.05))
        operation = await driver.operation()
        assert isinstance(await ended(removing), DeadlineError)
        again = call(rig, delete("a"))
        refused = await ended(call(rig, delete("a")))
        assert isinstance(refused, ConflictError)
        assert "was not sent" in refused.message
        deleted = v1.Result(id=operation.id, hub_id=operation.hub_id, status=v1.Status(code=5, message="gone"))
        await driver.send(v1.DriverMessage(result=deleted))
        assert (await ended(again)).slug == "not_found"
        assert rig.hub.drivers()[0].in_flight == 0


async def test_case_56_two_creates_of_one_machine_at_once_are_one_message() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect()
        making = call(rig, create("m-1"))
        operation = await driver.operation()
        assert isinstance(await ended(call(rig, create("m-1"))), DeadlineError)
        await driver.created(operation)
        await making


# -- 57: errors without a code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_id", ["", "Error", "error"])
async def test_case_57_an_id_that_is_none_with_an_error_is_a_failed_create(no_id: str) -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = call(rig, create())
        text = "InsufficientInstanceCapacity: We currently do not have sufficient capacity\n\tstatus code: 500"
        await driver.created((await driver.receive()).operationID, no_id, node=no_id, error=text)
        error = await ended(making)
        assert (error.slug, error.is_final, error.message) == ("out_of_stock", True, text)
        making = call(rig, create())
        await driver.created((await driver.receive()).operationID, no_id, node=no_id, error="Waldi has eaten it")
        error = await ended(making)
        assert (type(error), error.is_final) == (InternalError, True)
        making = call(rig, create())
        await driver.created((await driver.receive()).operationID, no_id, node=no_id)
        error = await ended(making)
        assert (type(error), error.is_final) == (InternalError, False), "neither a machine nor an error is a bug"


async def test_case_57_a_text_never_says_that_a_machine_is_gone() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        removing = call(rig, delete())
        await driver.deleted((await driver.receive()).operationID, error='secrets "aws" not found')
        assert type(await ended(removing)) is InternalError
        removing = call(rig, delete())
        await driver.deleted((await driver.receive()).operationID, error="RequestLimitExceeded: slow down")
        assert (await ended(removing)).slug == "rate_limited"
        looking = call(rig, listing())
        await driver.listed((await driver.receive()).operationID, error="AuthFailure: not you")
        error = await ended(looking)
        assert (error.slug, error.is_final) == ("unauthenticated", False)
