"""Messages of many megabytes: they hold nobody up, and say the same as short ones."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.protocol.dialect import Dialect, Introduction, Malformed, Reply
from cloudgraft.dock.protocol.messages import Operation, Result
from cloudgraft.dock.protocol.v0 import DialectV0
from cloudgraft.dock.protocol.v1 import DialectV1
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2
from cloudgraft.wire.streaming_decode import LARGE, LARGEST_ENTRY, cut_out
from tests.dock.hub.hub_rig import ACME, CLASS, listing, rigged
from tests.dock.hub.raw_drivers import RawV1, hello

pytestmark = pytest.mark.thorough  # megabytes, for seconds of CPU
MANY = 12_000


def result_v1(**answer: Any) -> bytes:
    return v1.DriverMessage(result=v1.Result(id=7, **answer)).SerializeToString()


def list_v1(count: int) -> driver_pb2.ListResponse:
    return driver_pb2.ListResponse(
        machines=[
            driver_pb2.Machine(name=f"m-{number}", machine_id=str(number), tags={"a": "b"}) for number in range(count)
        ]
    )


def list_v0(count: int, *, error: str = "") -> bytes:
    machines = [v0.DriverSide.machine(machineID=f"acme:///{n}", machineName=f"m-{n}") for n in range(count)]
    response = v0.DriverSide.listResp(list=machines, error=error)
    return v0.DriverSide(operationID=7, operationType="list", listresponse=response).SerializeToString()


async def understood(dialect: Dialect, data: bytes, operation: Operation) -> Result:
    decoded = dialect.decode(data)
    assert isinstance(decoded, Reply)
    assert decoded.number == 7
    result = dialect.result(decoded, operation)
    return result if isinstance(result, Result) else await result


async def test_a_long_list_of_v1_says_the_same_as_a_parser_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, data = DialectV1(), result_v1(list=list_v1(MANY), status=v1.Status(message="fine"))
    assert len(data) > LARGE
    little_by_little = await understood(dialect, data, listing())
    monkeypatch.setattr("cloudgraft.dock.protocol.v1.LARGE", len(data))
    assert little_by_little == await understood(dialect, data, listing())
    assert isinstance(little_by_little.answer, list)
    assert little_by_little.answer[-1] == Machine(name=f"m-{MANY - 1}", machine_id=str(MANY - 1), tags={"a": "b"})


async def test_a_long_list_of_v0_says_the_same_as_a_parser_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, data, failed = DialectV0(), list_v0(MANY), list_v0(MANY, error="no such network")
    little_by_little = await understood(dialect, data, listing()), await understood(dialect, failed, listing())
    monkeypatch.setattr("cloudgraft.dock.protocol.v0.LARGE", len(failed))
    assert little_by_little == (
        await understood(dialect, data, listing()),
        await understood(dialect, failed, listing()),
    )
    assert little_by_little[1].answer is None
    assert little_by_little[1].status.code is Code.UNKNOWN


@pytest.mark.parametrize("verb", [Verb.SHAPES, Verb.PRICES])
async def test_long_answers_to_other_questions_are_read_too(verb: Verb) -> None:
    operation = Operation(verb=verb, class_ref=CLASS, timeout=timedelta(seconds=30))
    shapes = [driver_pb2.Shape(name=f"shape-{number}", capacity={"cpu": "2"}) for number in range(MANY)]
    prices = [driver_pb2.Price(shape=f"shape-{number}", hourly="0.5", currency="EUR") for number in range(MANY)]
    answer: Any = (
        {"shapes": driver_pb2.ShapesResponse(shapes=shapes)}
        if verb is Verb.SHAPES
        else {"prices": driver_pb2.PricesResponse(prices=prices)}
    )
    result = await understood(DialectV1(), result_v1(**answer), operation)
    assert isinstance(result.answer, list)
    assert len(result.answer) == MANY


@pytest.mark.parametrize(
    ("dialect", "data"), [(DialectV1(), result_v1(list=list_v1(MANY))), (DialectV0(), list_v0(MANY))], ids=["v1", "v0"]
)
async def test_others_have_their_turn_while_a_long_list_is_read(dialect: Dialect, data: bytes) -> None:
    assert await turns_during(understood(dialect, data, listing())) >= MANY // 500


@pytest.mark.parametrize("kind", ["v0", "v1"])
async def test_others_have_their_turn_between_machines_that_are_long(kind: str) -> None:
    """By bytes, and not by machines: a few hundred long ones take seconds."""
    long = "x" * 60_000
    if kind == "v0":
        dialect: Dialect = DialectV0()
        machines = [v0.DriverSide.machine(machineID=long) for _ in range(50)]
        data = v0.DriverSide(operationID=7, listresponse=v0.DriverSide.listResp(list=machines)).SerializeToString()
    else:
        dialect = DialectV1()
        data = result_v1(list=driver_pb2.ListResponse(machines=[driver_pb2.Machine(machine_id=long)] * 50))
    assert await turns_during(understood(dialect, data, listing())) >= 50


async def turns_during(work: Coroutine[None, None, Result]) -> int:
    """How often another one had its turn meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await work
    task.cancel()
    return turns


def list_of(dialect: Dialect, content: bytes) -> bytes:
    """A message with these bytes for a list."""
    answer = bytes((6 << 3 | 2,)) + _length(len(content)) + content
    if isinstance(dialect, DialectV0):
        return bytes((1 << 3, 7)) + answer
    return bytes((2 << 3 | 2,)) + _length(len(answer) + 2) + bytes((1 << 3, 7)) + answer


@pytest.mark.parametrize("dialect", [DialectV0(), DialectV1()], ids=["v0", "v1"])
async def test_unknown_fields_are_skipped_unless_there_are_thousands(dialect: Dialect) -> None:
    """A later version may have some. Millions of them, two bytes each, would hold everybody up for seconds."""
    short, machine = b"\x18\x00", b"\x0a\x05\x0a\x01m\x12\x00"  # a number in field 3; an entry with one text
    with pytest.raises(InternalError, match="to its end"):
        await understood(dialect, list_of(dialect, short * LARGE), listing())
    if isinstance(dialect, DialectV1):
        machine = _entry(driver_pb2.Machine(machine_id="m").SerializeToString())
    found = await understood(dialect, list_of(dialect, short * 1000 + machine * (LARGE // 7)), listing())
    assert isinstance(found.answer, list)
    assert len(found.answer) == LARGE // 7


@pytest.mark.parametrize("dialect", [DialectV0(), DialectV1()], ids=["v0", "v1"])
@pytest.mark.parametrize("number", [1, 4, 5, 7])
async def test_one_machine_of_many_megabytes_is_none(dialect: Dialect, number: int) -> None:
    """It would be parsed, and made into ours, in one go: of a megabyte of empty tags that takes a third of a second."""
    part = bytes((number << 3 | 2, 0))
    entry = _entry(part * (LARGEST_ENTRY // 2 + 1))
    with pytest.raises(InternalError, match="to its end"):
        await understood(dialect, list_of(dialect, entry * 4), listing())


async def test_millions_of_errors_in_a_list_of_2018_are_not_walked_through() -> None:
    dialect = DialectV0()
    with pytest.raises(InternalError, match="to its end"):
        await understood(dialect, list_of(dialect, b"\x12\x00" * 300_000), listing())


def _entry(content: bytes) -> bytes:
    return bytes((1 << 3 | 2,)) + _length(len(content)) + content


async def test_millions_of_machines_that_are_none_are_refused_at_the_first() -> None:
    """Two bytes each, of which a parser makes a gigabyte."""
    machines = bytes((1 << 3 | 2, 0)) * (4 * 1024 * 1024)
    answer = bytes((6 << 3 | 2,)) + _length(len(machines)) + machines
    data = bytes((2 << 3 | 2,)) + _length(len(answer) + 2) + bytes((1 << 3, 7)) + answer
    with pytest.raises(InternalError, match="machine_id"):
        await understood(DialectV1(), data, listing())


def _length(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))


async def test_more_machines_than_anybody_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudgraft.dock.protocol.v1.MOST_ITEMS", 10)
    monkeypatch.setattr("cloudgraft.dock.protocol.v0.MOST_ITEMS", 10)
    for dialect, data in ((DialectV1(), result_v1(list=list_v1(11))), (DialectV0(), list_v0(11))):
        with pytest.raises(InternalError, match="more than 10"):
            await understood(dialect, data, listing())


@pytest.mark.parametrize(
    "spoiled",
    [
        result_v1(list=list_v1(MANY))[:-3],
        result_v1(machine_name="m" * LARGE),
        result_v1(create=driver_pb2.CreateResponse(machine=driver_pb2.Machine(name="m" * LARGE, machine_id="1"))),
        result_v1(list=list_v1(MANY)) * 2,
        v1.DriverMessage(bye=v1.Bye(reason="m" * LARGE)).SerializeToString(),
        bytes(LARGE + 1),
        b"\xff" * (LARGE + 1),
    ],
    ids=["cut off", "a long name", "a long create", "twice", "a long farewell", "zeros", "ones"],
)
async def test_a_long_message_that_is_no_answer_to_a_read_is_malformed(spoiled: bytes) -> None:
    assert isinstance(DialectV1().decode(spoiled), Malformed)
    assert isinstance(DialectV0().decode(spoiled), Malformed)


async def test_a_long_list_that_is_spoiled_in_the_middle_is_no_list() -> None:
    good = list_v1(MANY).SerializeToString()
    part = driver_pb2.ListResponse(next_page_token="more").SerializeToString()
    for spoiled in (good[:-1] + b"\xff\xff\xff", good + part, good[:1000] + b"\xff" * 100 + good[1100:]):
        answer = bytes((6 << 3 | 2,)) + _length(len(spoiled)) + spoiled
        data = bytes((2 << 3 | 2,)) + _length(len(answer) + 2) + bytes((1 << 3, 7)) + answer
        with pytest.raises(InternalError, match="to its end"):
            await understood(DialectV1(), data, listing())


def test_a_hello_that_is_too_long_is_refused_with_a_reason() -> None:
    said = hello(results=[v1.Result(id=1, machine_name="m" * 3_000_000)])
    with pytest.raises(InvalidArgumentError, match="fewer results"):
        DialectV1().introduction(said.SerializeToString())


def test_a_hello_with_a_million_results_is_read_in_part_and_not_kept() -> None:
    """A driver keeps a thousand. Parsed, the million would have taken a hundred megabytes."""
    said = hello(results=[v1.Result(id=7, hub_id="another", machine_name="m-1")]).hello.SerializeToString()
    results = bytes((v1.Hello.RESULTS_FIELD_NUMBER << 3 | 2, 0)) * 500_000
    data = bytes((v1.DriverMessage.HELLO_FIELD_NUMBER << 3 | 2,)) + _length(len(said) + len(results)) + said + results
    found = DialectV1().introduction(data)
    assert (found.info.key, len(found.late)) == (ACME, 2000)
    assert found.late[0] == Reply(7, None, foreign=True)


def test_a_hello_of_unknown_fields_is_refused() -> None:
    data = bytes((v1.DriverMessage.HELLO_FIELD_NUMBER << 3 | 2,)) + _length(1_000_000) + b"\xf8\x07\x00\x00" * 250_000
    with pytest.raises(InvalidArgumentError, match="must be hello"):
        DialectV1().introduction(data)


async def test_what_came_with_a_hello_is_let_go_once_the_driver_is_taken() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        await driver.connect(results=[v1.Result(id=number, hub_id="another") for number in range(1, 1000)])
        await driver.word("acknowledge")
        assert [each for each in gc.get_objects() if isinstance(each, Introduction)] == []


def test_many_small_fields_are_not_walked_through() -> None:
    with pytest.raises(DecodeError):
        cut_out(memoryview(bytes((1 << 3, 7)) * 1_000_000), 6)
