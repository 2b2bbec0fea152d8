"""The runner and the real hub, as processes that are killed; a simulated cloud keeps the ledger."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError
from cloudgraft.simcloud.driver import SimulatedDriver
from tests.conditions import until
from tests.dock.runner.driver_program import DriverProcess
from tests.dock.runner.drivers import GatedDriver, running
from tests.dock.runner.hanging_cloud import HangingCloud
from tests.dock.runner.real_hub import KEY, HubProcess, dock
from tests.dock.runner.small_hub import create

Start = Callable[[str, str], DriverProcess]


@pytest.fixture
def sky() -> Iterator[HangingCloud]:
    """A cloud that makes a second machine when it is asked a second time."""
    with HangingCloud(Idempotency.NONE) as made:
        yield made


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts drivers, and ends those that are left."""
    started: list[DriverProcess] = []

    def begin(address: str, url: str) -> DriverProcess:
        started.append(DriverProcess(address, url))
        return started[-1]

    yield begin
    for driver in started:
        if driver.process.poll() is None:
            driver.end()


@pytest.mark.timeout(150)  # two processes are started
async def test_case_26_a_driver_that_is_killed_in_mid_create_leaves_one_machine(
    sky: HangingCloud, start: Start
) -> None:
    """Laws 2 and 3: the hub says that it does not know; the cloud makes the machine after all, and is asked once.

    Create is not idempotent in this cloud: an order that the hub gave again by itself would show as a second machine.
    """
    async with dock() as own:
        first = start(own.address, sky.url)
        await own.connected()
        sky.hangs(yes=True)
        making = asyncio.create_task(own.make("m-1"))
        await until(lambda: sky.cloud.asked == 1)
        first.end(signal.SIGKILL)
        with pytest.raises(DeadlineError):
            await making
        with pytest.raises(UnavailableError):
            await own.make("m-1")
        sky.hangs(yes=False)
        await until(lambda: sky.names() == ["m-1"], what="the cloud has made it")
        second = start(own.address, sky.url)
        await own.connected()
        assert await own.names() == ["m-1"], "a list tells"
        assert (sky.names(), sky.cloud.asked) == (["m-1"], 1)
        assert second.end(signal.SIGTERM) == 0
        assert "serving LabMachineClass" in second.log
        await until(lambda: own.hub.info(KEY) is None)


@pytest.mark.timeout(150)
async def test_case_30_a_hub_killed_in_mid_create_gets_the_result_after_its_restart() -> None:
    """Laws 2 and 3: kill -9 of the hub; the create ends meanwhile, and is replayed. A repeated one makes no second."""
    driver = GatedDriver()
    gate = driver.hold("m-1")
    with HubProcess() as hub:
        async with running(driver, f"127.0.0.1:{hub.port}") as runner:
            await runner.wait_connected()
            hub.order("create m-1")
            await until(lambda: driver.begun == ["m-1"])
            hub.kill()
            await until(lambda: not runner.is_connected)
            gate.set()
            await until(lambda: runner.unacknowledged == 1)
            with HubProcess(hub.port) as successor:
                await successor.until("counts")
                assert await successor.told("list") == ["m-1"]
                assert await successor.told("create m-1") == "id-1"
                assert any(line.get("counts", {}).get("late") for line in successor.said)
                await until(lambda: runner.unacknowledged == 0)
                assert len(driver.machines) == 1


async def test_case_21_over_the_real_hub_a_late_success_is_one_machine() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with dock() as own, running(driver, own.address) as runner:
        await own.connected()
        first = asyncio.create_task(own.make("m-1", seconds=2.0))
        await until(lambda: driver.begun == ["m-1"])
        with pytest.raises(DeadlineError):
            await first
        with pytest.raises(DeadlineError):  # the first is still under way
            await own.make("m-1", seconds=0.5)
        told = len(own.told)
        gate.set()
        await until(lambda: len(own.told) > told)
        assert (await own.make("m-1")).machine_id == "id-1"
        assert await own.names() == ["m-1"]
        await until(lambda: runner.unacknowledged == 0)
        assert len(driver.machines) == 1


async def test_case_31_after_an_outage_the_driver_is_back_by_itself() -> None:
    """One runner all the time: nobody starts it again."""
    driver = GatedDriver()
    async with AsyncExitStack() as stack:
        async with dock() as first:
            runner = await stack.enter_async_context(running(driver, first.address))
            await first.connected()
            port = first.port
        await until(lambda: not runner.is_connected)
        async with dock(port=port) as second:
            await second.connected()
            assert (await second.make("m-1")).machine_id == "id-1"
            assert runner.connections == 2


async def test_case_34_a_stopped_driver_reports_what_ran_before_it_leaves() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with dock() as own:
        async with running(driver, own.address) as runner:
            await own.connected()
            making = asyncio.create_task(own.make("m-1"))
            await until(lambda: driver.begun == ["m-1"])
            stopping = asyncio.create_task(runner.stop())
            await until(lambda: own.hub.info(KEY) is None)
            with pytest.raises(UnavailableError):
                await own.make("m-2")
            gate.set()
            assert (await making).machine_id == "id-1"
            await stopping
        await until(lambda: not own.hub.drivers())
        assert driver.begun == ["m-1"]


async def test_two_hundred_operations_over_the_real_hub_are_all_answered(sky: HangingCloud) -> None:
    driver = SimulatedDriver.of(sky.cloud)
    async with dock() as own, running(driver, own.address, max_in_flight=200):
        await own.connected()
        made = await asyncio.gather(*(own.make(f"m-{number}") for number in range(200)))
        assert len({machine.machine_id for machine in made}) == 200
        assert len(await own.names()) == 200


async def test_errors_come_through_the_real_hub_as_they_were_raised() -> None:
    driver = GatedDriver()
    async with dock() as own, running(driver, own.address):
        await own.connected()
        for kind in CloudgraftError.__subclasses__():
            driver.fails = kind("as the test wants it")
            with pytest.raises(CloudgraftError) as caught:
                await own.call(create("m-1"))
            assert caught.value.message.endswith("as the test wants it")
            if kind.__name__ in {"UnavailableError", "PermissionDeniedError", "InvalidArgumentError", "DeadlineError"}:
                assert isinstance(caught.value, kind)
