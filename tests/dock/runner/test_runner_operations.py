"""What a connected driver does with its operations (v1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from decimal import Decimal

import pytest

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.protocol.messages import Result
from cloudgraft.dock.runner import MachineError, RunnerOptions, Tls
from cloudgraft.dock.runner.classes import Classes
from cloudgraft.dock.runner.work import Job, OperationRunner
from cloudgraft.sdk import (
    BlockingDriver,
    CloudgraftError,
    InvalidArgumentError,
    Machine,
    MachineSpec,
    OutOfStockError,
    Price,
    Quantity,
    RateLimitedError,
    Shape,
    hide,
)
from cloudgraft.sdk.driver import Driver
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND, GatedDriver, running
from tests.dock.runner.small_hub import create, delete, read, small_hub


class PricedDriver(GatedDriver):
    async def shapes(self) -> Sequence[Shape]:
        return [Shape(name="small", capacity={"cpu": Quantity("2")})]

    async def prices(self) -> Sequence[Price]:
        return [Price(shape="small", hourly=Decimal("0.02"), currency="EUR")]


class ThreadedLab(BlockingDriver):
    """Blocks, and notes in which threads."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.machines: list[Machine] = []

    def create(self, spec: MachineSpec) -> Machine:
        self.threads.add(threading.current_thread().name)
        self.machines.append(Machine(name=spec.name, machine_id=spec.name))
        return self.machines[-1]

    def delete(self, machine: Machine) -> None:
        self.machines.clear()

    def list(self) -> Sequence[Machine]:
        return self.machines


async def test_hello_says_who_the_driver_is() -> None:
    async with small_hub() as hub, running(PricedDriver(), hub.address, name="lab", version="1.2", max_in_flight=7):
        hello = (await hub.visit()).hello
        assert (hello.protocol, hello.kind, hello.api_version) == (1, KIND, API_VERSION)
        assert (hello.name, hello.version, hello.max_in_flight) == ("lab", "1.2", 7)
        assert list(hello.capabilities) == ["prices", "shapes"]
        assert (hello.traits.ownership, hello.traits.idempotency) == ("tags", "none")
        assert hello.instance_id
        assert not hello.results


@pytest.mark.parametrize("driver", [PricedDriver, ThreadedLab], ids=["async", "blocking"])
async def test_machines_are_made_listed_and_deleted(driver: type[Driver | BlockingDriver]) -> None:
    async with small_hub() as hub, running(driver(), hub.address):
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        made = await visit.result()
        assert (made.status.code, made.machine_name, made.create.machine.name) == (0, "m-1", "m-1")
        await visit.ask(read())
        assert [machine.name for machine in (await visit.result()).list.machines] == ["m-1"]
        await visit.ask(delete(Machine(name="m-1", machine_id=made.create.machine.machine_id)))
        assert (await visit.result()).WhichOneof("answer") == "delete"
        await visit.ask(read())
        empty = await visit.result()
        assert (empty.WhichOneof("answer"), len(empty.list.machines)) == ("list", 0)


async def test_shapes_and_prices_are_served() -> None:
    async with small_hub() as hub, running(PricedDriver(), hub.address):
        visit = await hub.visit()
        await visit.ask(read(Verb.SHAPES))
        assert (await visit.result()).shapes.shapes[0].capacity["cpu"] == "2"
        await visit.ask(read(Verb.PRICES))
        assert (await visit.result()).prices.prices[0].hourly == "0.02"


async def test_a_slow_create_holds_up_nothing_else() -> None:
    driver = GatedDriver()
    gate = driver.hold("slow")
    async with small_hub() as hub, running(driver, hub.address, max_in_flight=1):
        visit = await hub.visit()
        slow = await visit.ask(create("slow"))
        await until(lambda: driver.begun == ["slow"])
        await visit.ask(read())
        assert (await visit.result()).WhichOneof("answer") == "list"
        gate.set()
        assert (await visit.result()).id == slow


async def test_a_second_change_of_a_machine_is_refused_while_one_runs() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        first = await visit.ask(create("m-1"))
        second = await visit.ask(create("m-1"))
        refused = await visit.result()
        assert (refused.id, refused.status.code) == (second, Code.ABORTED)
        assert "still under way" in refused.status.message
        other = await visit.ask(create("m-2"))
        assert (await visit.result()).id == other
        gate.set()
        assert (await visit.result()).id == first
        assert [machine.name for machine in driver.machines] == ["m-2", "m-1"]


async def test_more_than_it_said_is_refused_and_nothing_was_done() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address, max_in_flight=1):
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        await visit.ask(create("m-2"))
        refused = await visit.result()
        assert (refused.status.code, refused.status.retry_after.seconds) == (Code.UNAVAILABLE, 1)
        assert "nothing was done" in refused.status.message
        gate.set()
        assert (await visit.result()).status.code == 0
        assert driver.begun == ["m-1"]


@pytest.mark.parametrize("how", ["by its own clock", "cancelled", "asked again"])
async def test_case_21_a_create_that_ends_late_is_reported_and_not_made_twice(how: str) -> None:
    """Law 3: its caller has given up and asks again, even of a cloud in which a second create makes a second one."""
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        first = await visit.ask(create("m-1", seconds=0.05))
        await until(lambda: driver.begun == ["m-1"])
        if how == "asked again":
            again = await visit.ask(create("m-1"))
            refused = await visit.result()
            assert (refused.id, refused.status.code) == (again, Code.ABORTED)
        elif how == "cancelled":
            await visit.say(cancel={"id": first})
            await visit.ask(read())  # when that is answered, the cancel has been heard
            await visit.result()
        else:
            await asyncio.sleep(0.06)  # the deadline itself is what is tested
        gate.set()
        late = await visit.result()
        assert (late.id, late.status.code, late.create.machine.machine_id) == (first, 0, "id-1")
        await visit.ask(create("m-1"))
        assert (await visit.result()).create.machine.machine_id == "id-1"
        assert len(driver.machines) == 1


async def test_a_read_ends_at_its_deadline() -> None:
    driver = GatedDriver()
    driver.list_gate = asyncio.Event()
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        await visit.ask(read(seconds=0.05))
        assert (await visit.result()).status.code == Code.DEADLINE_EXCEEDED


async def test_cancel_ends_a_read_and_leaves_a_create_to_its_end() -> None:
    driver = GatedDriver()
    driver.list_gate = asyncio.Event()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        made, listed = await visit.ask(create("m-1")), await visit.ask(read())
        await until(lambda: driver.begun == ["m-1"])
        for number in (made, listed):
            await visit.say(cancel={"id": number})
        ended = await visit.result()
        assert (ended.id, ended.status.code) == (listed, Code.CANCELLED)
        gate.set()
        done = await visit.result()
        assert (done.id, done.status.code) == (made, 0)


async def test_what_is_cancelled_before_its_first_step_is_answered_and_blocks_nothing() -> None:
    driver = GatedDriver()
    operations = OperationRunner(driver, Classes(None), places=1)
    told: list[Code] = []

    def done(_: Job, result: Result) -> None:
        told.append(result.status.code)

    operations.begin(Job(id=1, hub_id="h", operation=create("m-1"), on_done=done))
    operations.cancel("h", 1)
    await operations.idle(5.0)
    operations.begin(Job(id=2, hub_id="h", operation=create("m-1"), on_done=done))
    await operations.idle(5.0)
    assert told == [Code.CANCELLED, Code.OK]
    assert (driver.begun, len(operations)) == (["m-1"], 0)


@pytest.mark.parametrize(
    ("error", "code", "text", "wait"),
    [
        (OutOfStockError("no more gpus"), Code.RESOURCE_EXHAUSTED, "no more gpus", 0),
        (InvalidArgumentError("no such image"), Code.INVALID_ARGUMENT, "no such image", 0),
        (RateLimitedError("slower", retry_after=7), Code.UNAVAILABLE, "slower", 7),
        (RateLimitedError("slower"), Code.UNAVAILABLE, "slower", 1),
        (MachineError(Code.OUT_OF_RANGE, "two of them"), Code.OUT_OF_RANGE, "two of them", 0),
        (SystemExit(3), Code.UNKNOWN, "unexpected EscapedError", 0),
        (TimeoutError("of a library"), Code.DEADLINE_EXCEEDED, "in time", 0),
    ],
)
async def test_what_a_driver_raises_becomes_its_code(
    error: BaseException, code: Code, text: str, wait: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver = GatedDriver()
    driver.fails = error
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        status = (await visit.result()).status
        assert (status.code, status.retry_after.seconds) == (code, wait)
        assert text in status.message


async def test_an_unexpected_exception_keeps_its_text_and_every_secret_to_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Law 9."""
    hide("hunter2-hunter2")
    driver = GatedDriver()
    driver.fails = ValueError("login with hunter2-hunter2 at 10.0.0.7 failed")
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        status = (await visit.result()).status
    assert status.code == Code.UNKNOWN
    assert "10.0.0.7" not in status.message
    assert "ValueError" in status.message
    assert "10.0.0.7" in caplog.text
    assert "hunter2" not in caplog.text


class Liar(GatedDriver):
    """Answers with what is no answer."""

    answer: object = None

    async def create(self, spec: MachineSpec) -> Machine:
        return self.answer  # type: ignore[return-value]  # that is the point

    async def list(self) -> Sequence[Machine]:
        return self.answer  # type: ignore[return-value]  # that is the point


NO_ANSWERS = [None, 3, "m-1", [1, 2], Machine(name="another", machine_id="1"), Machine(name="m-1", machine_id="")]


@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_answers_that_are_none_are_errors_and_never_success(answer: object) -> None:
    driver = Liar()
    driver.answer = answer
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        for operation in (create("m-1"), read()):
            await visit.ask(operation)
            result = await visit.result()
            assert result.status.code in {Code.UNKNOWN, Code.INTERNAL}
            assert result.WhichOneof("answer") is None


async def test_an_invalid_operation_is_refused() -> None:
    async with small_hub() as hub, running(GatedDriver(), hub.address):
        visit = await hub.visit()
        for bad in (
            {"id": 1, "hub_id": "hub-1"},
            {"id": 2, "hub_id": "hub-1", "create": {}},
            {"id": 3, "hub_id": "hub-1", "delete": {}},
            {"id": 4, "hub_id": "hub-1", "list": {"page_token": "next"}},
        ):
            await visit.say(operation=bad)
            result = await visit.result()
            assert (result.id, result.status.code) == (bad["id"], Code.INVALID_ARGUMENT)


async def test_a_list_that_the_hub_cannot_take_is_an_error_and_not_a_part() -> None:
    driver = GatedDriver()
    driver.machines = [Machine(name=f"m-{number}", machine_id=str(number)) for number in range(1000)]
    async with small_hub(most=5000) as hub, running(driver, hub.address):
        visit = await hub.visit()
        await visit.ask(read())
        result = await visit.result()
        assert (result.status.code, result.WhichOneof("answer")) == (Code.INTERNAL, None)
        assert "5000" in result.status.message


async def test_two_hundred_operations_at_once_are_all_answered() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address, max_in_flight=200):
        visit = await hub.visit()
        asked = {await visit.ask(create(f"m-{number}")) for number in range(200)}
        assert {(await visit.result()).id for _ in range(200)} == asked
        assert len(driver.machines) == 200


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"address": "hub.example:5000"}, "must be TLS"),
        ({"address": "hub.example"}, "port is missing"),
        ({"address": "127.0.0.1:1", "kind": " "}, "kind is empty"),
        ({"address": "127.0.0.1:1", "tls": Tls(key="k.pem")}, "no cert"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(wrong: dict[str, object], text: str) -> None:
    given = {"kind": KIND, "api_version": API_VERSION, **wrong}
    with pytest.raises(CloudgraftError, match=text):
        RunnerOptions(**given)  # type: ignore[arg-type]  # of several types
