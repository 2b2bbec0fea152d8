"""Operations and their answers: cases 10 to 25."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import ClassRef, Operation
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutOfStockError,
    Retry,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, CLASS, OTHER, Rig, create, delete, listing, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1, creation


async def registered(driver: RawV0, rig: Rig) -> None:
    await driver.register()
    await until(lambda: rig.hub.info(ACME) is not None)


async def ended(task: asyncio.Task[object]) -> CloudgraftError:
    """The error with which a call ended."""
    with pytest.raises(CloudgraftError) as caught:
        await task
    return caught.value


async def test_v0_has_the_2018_operations_and_their_answers_become_machines() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = asyncio.create_task(rig.hub.call(ACME, create("m-1", user_data="not for v0")))
        operation = await driver.receive()
        params = operation.operationparams
        assert (operation.operationID, operation.operationType) == (1, "create")
        assert (params.machineClassMetaData.name, params.machineClassMetaData.revision) == ("small", 3)
        assert (params.machineName, params.machineID, params.credentials) == ("m-1", "", "")
        await driver.created(1, "aws:///eu/i-1", node="ip-10-0-0-1")
        made = await making
        assert made == Machine(
            name="m-1", machine_id="aws:///eu/i-1", provider_id="aws:///eu/i-1", addresses=("ip-10-0-0-1",)
        )
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        operation = await driver.receive()
        assert (operation.operationID, operation.operationType, operation.operationparams.machineID) == (2, "list", "")
        await driver.listed(2, ("aws:///eu/i-1", "m-1"))
        assert await looking == [Machine(name="m-1", machine_id="aws:///eu/i-1", provider_id="aws:///eu/i-1")]
        removing = asyncio.create_task(rig.hub.call(ACME, delete("aws:///eu/i-1")))
        operation = await driver.receive()
        assert (operation.operationType, operation.operationparams.machineID) == ("delete", "aws:///eu/i-1")
        assert operation.operationparams.machineName == ""
        await driver.deleted(3)
        assert await removing is None


async def test_v1_carries_everything_and_results_are_acknowledged() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(capabilities=["prices"])
        making = asyncio.create_task(rig.hub.call(ACME, create("m-1", user_data="#cloud-config", seconds=45)))
        operation = await driver.operation()
        assert (operation.machine_class, operation.class_revision, operation.secret_revision) == ("small", 3, 5)
        assert (operation.create.user_data, operation.timeout.seconds) == ("#cloud-config", 45)
        await driver.created(operation, "42")
        made = await making
        assert made == Machine(name="m-1", machine_id="42", provider_id="acme:///42")
        assert list((await driver.word("acknowledge")).acknowledge.ids) == [operation.id]
        asking = asyncio.create_task(
            rig.hub.call(ACME, Operation(verb=Verb.PRICES, class_ref=CLASS, timeout=timedelta(seconds=30)))
        )
        operation = await driver.operation()
        price = driver_pb2.Price(shape="s", hourly="0.1", currency="EUR")
        answer = driver_pb2.PricesResponse(prices=[price])
        await driver.send(v1.DriverMessage(result=v1.Result(id=operation.id, prices=answer)))
        assert isinstance(prices := await asking, list)
        assert len(prices) == 1
        with pytest.raises(UnsupportedError):
            await rig.hub.call(ACME, Operation(verb=Verb.SHAPES, class_ref=CLASS, timeout=timedelta(seconds=30)))


async def test_case_10_a_reply_that_comes_at_once_finds_its_caller() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)

        async def reply_at_once() -> None:
            for _ in range(100):
                await driver.deleted((await driver.receive()).operationID)

        replying = asyncio.create_task(reply_at_once())
        for _ in range(100):
            await rig.hub.call(ACME, delete())
        await replying


async def test_case_10_a_reply_before_the_question_is_none() -> None:
    """Whoever guesses the next number does not answer it."""
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        await driver.created(1, "guessed")
        await driver.send_bytes(b"\xff")
        await until(lambda: rig.hub.drivers()[0].malformed == 1)  # so the guess was heard
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        operation = await driver.receive()
        await driver.created(operation.operationID, "real")
        assert (await making) == Machine(name="m-1", machine_id="real", provider_id="real")


async def test_case_11_replies_out_of_order_find_their_callers() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        tasks = [asyncio.create_task(rig.hub.call(ACME, create(f"m-{number}", at_once=10))) for number in range(10)]
        operations = [await driver.receive() for _ in tasks]
        for operation in reversed(operations):
            await driver.created(operation.operationID, f"id-{operation.operationparams.machineName}")
        machines = await asyncio.gather(*tasks)
        assert [machine.machine_id for machine in machines if isinstance(machine, Machine)] == [
            f"id-m-{number}" for number in range(10)
        ]


async def test_case_12_and_13_unknown_numbers_and_second_replies_are_dropped() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        number = (await driver.receive()).operationID
        for unknown in (number + 1, 0, -5, 2**31 - 1):
            await driver.created(unknown, "nobody's")
        await driver.created(number, "first")
        await driver.created(number, "second")
        made = await making
        assert isinstance(made, Machine)
        assert made.machine_id == "first"
        again = asyncio.create_task(rig.hub.call(ACME, delete()))
        await driver.deleted((await driver.receive()).operationID)
        await again
        assert rig.hub.drivers()[0].malformed == 0
        assert rig.notified == [ACME]  # none of these was a late result


async def test_case_14_an_answer_to_another_question_fails_that_operation_only() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        making = asyncio.create_task(rig.hub.call(ACME, create(at_once=2)))
        first = await driver.receive()
        removing = asyncio.create_task(rig.hub.call(ACME, delete()))
        second = await driver.receive()
        await driver.deleted(first.operationID)
        error = await ended(making)
        assert isinstance(error, InternalError)
        assert error.retry is Retry.SETTLE_FIRST
        await driver.deleted(second.operationID)
        await removing
        assert rig.hub.drivers()[0].malformed == 1


async def test_case_15_an_answer_without_a_payload_fails_the_operation() -> None:
    async with rigged() as rig, RawV0(rig) as driver, RawV1(rig) as other:
        await registered(driver, rig)
        await other.connect(OTHER)
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        number = (await driver.receive()).operationID
        await driver.send(v0.DriverSide(operationID=number, operationType="create"))
        assert "nothing" in (await ended(making)).message
        removing = asyncio.create_task(rig.hub.call(OTHER, delete()))
        operation = await other.operation()
        await other.send(v1.DriverMessage(result=v1.Result(id=operation.id)))
        assert isinstance(await ended(removing), InternalError)


async def test_case_16_an_unknown_operation_type_is_an_echo_that_does_not_matter() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        removing = asyncio.create_task(rig.hub.call(ACME, delete()))
        number = (await driver.receive()).operationID
        await driver.send(v0.DriverSide(operationID=-1, operationType="getVMs"))
        await driver.send(
            v0.DriverSide(operationID=number, operationType="obliterate", deleteresponse=v0.DriverSide.deleteResp())
        )
        await removing


async def test_too_many_malformed_messages_end_the_connection() -> None:
    async with rigged(HubSettings(malformed=3)) as rig, RawV0(rig) as driver, RawV1(rig) as other:
        await registered(driver, rig)
        await other.connect(OTHER)
        waiting = asyncio.create_task(rig.hub.call(ACME, create()))
        await driver.receive()
        await driver.send_bytes(b"\xff\xff")
        await driver.send(v0.DriverSide(registerResp=v0.DriverSide.registerationResp(kind="again")))
        await driver.send_bytes(b"\xff\xff")
        assert (await driver.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(await ended(waiting), DeadlineError)
        assert [one.info.key for one in rig.hub.drivers()] == [OTHER]
        await other.send(v1.DriverMessage())
        await other.send(v1.DriverMessage(hello=v1.Hello()))
        await other.send_bytes(b"\xff")
        assert (await other.end())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_case_17_an_error_with_a_machine_leaves_the_outcome_open() -> None:
    async with rigged() as rig, RawV0(rig) as driver, RawV1(rig) as other:
        await registered(driver, rig)
        await other.connect(OTHER)
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        await driver.created((await driver.receive()).operationID, "acme:///m-1", node="ip-1", error="it broke")
        error = await ended(making)
        assert isinstance(error, DeadlineError)
        assert "it broke" in error.message
        making = asyncio.create_task(rig.hub.call(OTHER, create()))
        result = creation(await other.operation())
        result.status.code = 8
        await other.send(v1.DriverMessage(result=result))
        assert isinstance(await ended(making), DeadlineError)


async def test_errors_of_v0_are_texts_in_which_a_code_is_understood() -> None:
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        coded = "machine codes error: code = [ResourceExhausted] message = [no [large] ones left]"
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        await driver.created((await driver.receive()).operationID, "", error=coded)
        error = await ended(making)
        assert isinstance(error, OutOfStockError)
        assert error.message == "no [large] ones left"
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        await driver.listed((await driver.receive()).operationID, ("a", "m-1"), error="half of it failed")
        assert isinstance(await ended(looking), InternalError)  # half a list is none


async def test_case_18_a_success_without_a_provider_id_is_no_success() -> None:
    async with rigged() as rig, RawV0(rig) as driver, RawV1(rig) as other:
        await registered(driver, rig)
        await other.connect(OTHER)
        making = asyncio.create_task(rig.hub.call(ACME, create()))
        await driver.created((await driver.receive()).operationID, "")
        error = await ended(making)
        assert isinstance(error, InternalError)
        assert error.retry is Retry.SETTLE_FIRST
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        await driver.listed((await driver.receive()).operationID, ("a", "m-1"), ("", "m-2"))
        assert isinstance(await ended(looking), InternalError)
        making = asyncio.create_task(rig.hub.call(OTHER, create()))
        await other.created(await other.operation(), "")
        assert isinstance(await ended(making), InternalError)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_19_of_200_operations_at_once_none_is_lost(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        if isinstance(driver, RawV0):
            await registered(driver, rig)
        else:
            await driver.connect()
        tasks = [asyncio.create_task(rig.hub.call(ACME, create(f"m-{number}"))) for number in range(200)]
        for _ in tasks:
            if isinstance(driver, RawV0):
                told = await driver.receive()
                await driver.created(told.operationID, told.operationparams.machineName)
            else:
                operation = await driver.operation()
                await driver.created(operation, operation.create.name)
        machines = await asyncio.gather(*tasks)
        assert [machine.machine_id for machine in machines if isinstance(machine, Machine)] == [
            f"m-{number}" for number in range(200)
        ]


async def test_case_20_a_slow_create_holds_up_neither_list_nor_delete_nor_another_driver() -> None:
    async with rigged() as rig, RawV0(rig) as driver, RawV1(rig) as other:
        await registered(driver, rig)
        await other.connect(OTHER)
        making = asyncio.create_task(rig.hub.call(ACME, create(at_once=3)))
        slow = (await driver.receive()).operationID
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        removing = asyncio.create_task(rig.hub.call(ACME, delete()))
        await driver.listed((await driver.receive()).operationID)
        await driver.deleted((await driver.receive()).operationID)
        await looking
        await removing
        elsewhere = asyncio.create_task(rig.hub.call(OTHER, create()))
        await other.created(await other.operation())
        await elsewhere
        assert not making.done()
        await driver.created(slow)
        await making


async def test_a_driver_gets_no_more_operations_at_a_time_than_it_takes() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(max_in_flight=2)
        tasks = [asyncio.create_task(rig.hub.call(ACME, create(f"m-{number}"))) for number in range(5)]
        held = [await driver.operation(), await driver.operation()]
        report = rig.hub.drivers()[0]
        assert (report.in_flight, report.queued) == (2, 3)
        for _ in range(3):
            await driver.created(held.pop(0))
            held.append(await driver.operation())
        for operation in held:
            await driver.created(operation)
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_21_a_deadline_means_unknown_outcome_and_a_late_result_notifies(kind: type[RawV0 | RawV1]) -> None:
    """The hub's part of it: whoever listens lists again, and finds the machine."""
    async with rigged() as rig, kind(rig) as driver:
        if isinstance(driver, RawV0):
            await registered(driver, rig)
        else:
            await driver.connect()
        making = asyncio.create_task(rig.hub.call(ACME, create(seconds=1.5)))
        operation = await (driver.receive() if isinstance(driver, RawV0) else driver.operation())
        assert isinstance(await ended(making), DeadlineError)
        rig.notified.clear()
        for _ in range(2):  # the second one is nothing new
            if isinstance(operation, v0.MCMside) and isinstance(driver, RawV0):
                await driver.created(operation.operationID)
            elif isinstance(operation, v1.Operation) and isinstance(driver, RawV1):
                await driver.created(operation)
                assert list((await driver.word("acknowledge")).acknowledge.ids) == [operation.id]
        await until(lambda: rig.notified == [ACME])
        assert rig.hub.counts()["late"] == 1


async def test_case_22_a_cancel_reaches_the_driver_and_its_late_result_notifies() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(max_in_flight=1)
        making = asyncio.create_task(rig.hub.call(ACME, create("m-1")))
        operation = await driver.operation()
        never_sent = asyncio.create_task(rig.hub.call(ACME, create("m-2")))
        await until(lambda: rig.hub.drivers()[0].queued == 1)
        never_sent.cancel()
        making.cancel()
        assert (await driver.word("cancel")).cancel.id == operation.id
        await asyncio.gather(making, never_sent, return_exceptions=True)
        assert (rig.hub.drivers()[0].queued, rig.hub.drivers()[0].in_flight) == (0, 0)
        rig.notified.clear()
        await driver.created(operation)
        await until(lambda: rig.notified == [ACME])
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        assert (await driver.operation()).WhichOneof("call") == "list"  # the second create was never sent
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_case_23_numbers_begin_again_at_1_and_leave_out_what_is_still_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cloudgraft.dock.protocol.v0.LAST_NUMBER", 4)
    async with rigged() as rig, RawV0(rig) as driver:
        await registered(driver, rig)
        slow = asyncio.create_task(rig.hub.call(ACME, create("slow", at_once=3)))
        assert (await driver.receive()).operationID == 1
        late = asyncio.create_task(rig.hub.call(ACME, create("late", seconds=1.5)))
        assert (await driver.receive()).operationID == 2
        await ended(late)
        seen = []
        for _ in range(5):
            task = asyncio.create_task(rig.hub.call(ACME, delete()))
            seen.append((await driver.receive()).operationID)
            await driver.deleted(seen[-1])
            await task
        assert seen == [3, 4, 3, 4, 3]
        await driver.created(1, "slow's own")
        made = await slow
        assert isinstance(made, Machine)
        assert made.machine_id == "slow's own"


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_24_a_list_of_more_than_4_mb_arrives(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        names = [f"{number:0500}" for number in range(10_000)]  # 5 MB
        if isinstance(driver, RawV0):
            await registered(driver, rig)
            looking = asyncio.create_task(rig.hub.call(ACME, listing()))
            await driver.listed((await driver.receive()).operationID, *((name, name) for name in names))
        else:
            await driver.connect()
            looking = asyncio.create_task(rig.hub.call(ACME, listing()))
            await driver.listed(
                await driver.operation(), *(driver_pb2.Machine(name="m", machine_id=name) for name in names)
            )
        machines = await looking
        assert isinstance(machines, list)
        assert [machine.machine_id for machine in machines] == names


async def test_a_part_of_a_list_is_no_list() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect()
        looking = asyncio.create_task(rig.hub.call(ACME, listing()))
        operation = await driver.operation()
        page = driver_pb2.ListResponse(next_page_token="more")
        await driver.send(v1.DriverMessage(result=v1.Result(id=operation.id, list=page)))
        assert isinstance(await ended(looking), InternalError)


async def test_case_25_a_full_outbox_refuses_at_once_and_nothing_was_sent() -> None:
    async with rigged(HubSettings(heartbeat=30, outbox=3)) as rig, RawV1(rig) as driver, RawV1(rig) as other:
        await driver.connect(max_in_flight=1)
        await other.connect(OTHER)
        tasks = [asyncio.create_task(rig.hub.call(ACME, create("m-0")))]
        first = await driver.operation()
        tasks += [asyncio.create_task(rig.hub.call(ACME, create(f"m-{number}"))) for number in (1, 2, 3)]
        await until(lambda: rig.hub.drivers()[0].queued == 3)
        with pytest.raises(UnavailableError, match="nothing was sent"):
            await rig.hub.call(ACME, create("one too many"))
        elsewhere = asyncio.create_task(rig.hub.call(OTHER, create()))
        await other.created(await other.operation())
        await elsewhere
        await driver.created(first)
        for _ in range(3):
            await driver.created(await driver.operation())
        await asyncio.gather(*tasks)


async def test_an_operation_that_waited_too_long_to_be_sent_was_certainly_not_done() -> None:
    async with rigged(HubSettings(heartbeat=30, queue=0.05)) as rig, RawV1(rig) as driver:
        await driver.connect(max_in_flight=1)
        slow = asyncio.create_task(rig.hub.call(ACME, create("m-1")))
        operation = await driver.operation()
        with pytest.raises(UnavailableError, match="was not sent, and nothing was done"):
            await rig.hub.call(ACME, create("m-2"))
        await driver.created(operation)
        await slow
        again = asyncio.create_task(rig.hub.call(ACME, create("m-3")))
        assert (await driver.operation()).create.name == "m-3"
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_what_would_be_dangerous_or_impossible_to_send_is_not_sent(kind: type[RawV0 | RawV1]) -> None:
    async with rigged() as rig, kind(rig) as driver:
        if isinstance(driver, RawV0):
            await registered(driver, rig)
        else:
            await driver.connect()
        for operation in (delete(""), create(""), create("half \ud800 a character")):
            with pytest.raises(InvalidArgumentError):
                await rig.hub.call(ACME, operation)
        if kind is RawV0:
            with pytest.raises(UnsupportedError):
                await rig.hub.call(
                    ACME, Operation(verb=Verb.SHAPES, class_ref=ClassRef(name="x"), timeout=timedelta(seconds=1))
                )
        else:
            with pytest.raises(InvalidArgumentError, match="bytes"):
                await rig.hub.call(ACME, create(user_data="x" * 17_000_000))
