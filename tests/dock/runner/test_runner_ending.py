"""stop() really stops, whatever the author's code does; and run() says where it cannot run."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.runner import DockRunner, RunnerOptions, run, run_until_told
from cloudgraft.dock.runner.connection import Dialled, dial
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import PreconditionError
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND, GatedDriver, options_for, running
from tests.dock.runner.real_hub import dock
from tests.dock.runner.small_hub import create, read, small_hub


class Stubborn(GatedDriver):
    """Is cancelled, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def create(self, spec: MachineSpec) -> Machine:
        self.begun.append(spec.name)
        await self._stay()
        return Machine(name=spec.name, machine_id="1")

    async def close(self) -> None:
        self.closed += 1
        await self._stay()

    async def _stay(self) -> None:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue


class Hanging(BlockingDriver):
    """Every call takes as long as the test wants."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.listed = 0

    def create(self, spec: MachineSpec) -> Machine:
        return Machine(name=spec.name, machine_id="1")

    def delete(self, machine: Machine) -> None:
        self.released.wait(60)

    def list(self) -> Sequence[Machine]:
        self.listed += 1
        self.released.wait(60)
        return []


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    driver = Hanging()
    yield driver
    driver.released.set()


@pytest.mark.usefixtures("_impatient")
async def test_stop_ends_also_when_the_drivers_code_does_not(caplog: pytest.LogCaptureFixture) -> None:
    driver = Stubborn()
    async with small_hub() as hub:
        runner = DockRunner(driver, options_for(hub.address))
        await runner.start()
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        await until(lambda: driver.begun == ["m-1"])
        async with asyncio.timeout(20):
            await runner.stop(grace=0.05)
        await until(visit.over.is_set)
    assert driver.closed == 1
    assert "close() failed: TimeoutError" in caplog.text
    driver.released.set()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last waits, which are for nothing here."""
    monkeypatch.setattr("cloudgraft.dock.runner.work._LAST", 0.05)
    monkeypatch.setattr("cloudgraft.dock.runner.runner._CLOSE", 0.05)


async def test_lists_that_hang_in_threads_leave_changes_theirs(hanging: Hanging) -> None:
    """A thread cannot be stopped: the list's caller is gone, the thread is not."""
    async with small_hub() as hub, running(hanging, hub.address, max_in_flight=2):
        visit = await hub.visit()
        for _ in range(6):
            await visit.ask(read(Verb.LIST, seconds=0.05))
            assert (await visit.result()).status.code in {Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE}
        assert hanging.listed <= 2
        await visit.ask(create("m-1"))
        assert (await visit.result()).status.code == Code.OK


PROGRAM = f"""
import sys, time
from cloudgraft.dock import RunnerSettings, run
from cloudgraft.sdk import BlockingDriver

class Hanging(BlockingDriver):
    def create(self, spec): time.sleep(600)
    def delete(self, machine): pass
    def list(self): return []

run(Hanging(), address=sys.argv[1], kind="{KIND}", api_version="{API_VERSION}", settings=RunnerSettings(grace=0.1))
"""


def started(address: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, address], stderr=subprocess.DEVNULL)


@pytest.mark.timeout(120)
async def test_a_program_ends_at_a_signal_although_a_thread_hangs() -> None:
    async with dock() as own:
        program = started(own.address)
        try:
            await own.connected()
            making = asyncio.create_task(own.make("m-1"))
            await until(lambda: own.hub.drivers()[0].in_flight == 1)
            program.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(program.wait, 30) == 0
            await asyncio.gather(making, return_exceptions=True)
        finally:
            program.kill()
            program.wait()


async def test_run_in_a_running_event_loop_says_what_to_do_instead() -> None:
    with pytest.raises(PreconditionError, match="await run_until_told"):
        run(GatedDriver(), address="127.0.0.1:1", kind=KIND, api_version=API_VERSION)


async def test_in_another_thread_it_says_what_to_do_instead() -> None:
    def elsewhere() -> None:
        asyncio.run(run_until_told(GatedDriver(), options_for("127.0.0.1:1")))

    with pytest.raises(PreconditionError, match="DockRunner"):
        await asyncio.to_thread(elsewhere)


async def test_a_runner_works_in_the_event_loop_of_another_thread() -> None:
    driver = GatedDriver()

    async def serve(address: str, is_over: threading.Event) -> None:
        async with running(driver, address):
            await asyncio.to_thread(is_over.wait, 60)

    async with dock() as own:
        is_over = threading.Event()
        serving = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(serve(own.address, is_over))))
        try:
            await own.connected()
            assert (await own.make("m-1")).name == "m-1"
        finally:
            is_over.set()
            await serving
    assert driver.closed == 1


async def test_an_unexpected_exception_ends_one_connection_and_not_the_driver(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is away for ever, and says nothing, is worse than any bug."""
    failures = [ZeroDivisionError("for this test")]

    def fails_once(options: RunnerOptions) -> Dialled:
        if failures:
            raise failures.pop()
        return dial(options)

    monkeypatch.setattr("cloudgraft.dock.runner.runner.dial", fails_once)
    async with small_hub() as hub, running(GatedDriver(), hub.address):
        await hub.visit()
    assert "unexpected ZeroDivisionError" in caplog.text
