"""Blocking code off the event loop: bounded, and unable to keep the program alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from cloudgraft.sdk import (
    BlockingDriver,
    BlockingProvider,
    Driver,
    InvalidArgumentError,
    Machine,
    MachineSpec,
    Provider,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.common.event_loop import BlockingPool
from tests.conditions import until


async def test_a_call_runs_in_another_thread_and_the_loop_goes_on() -> None:
    pool = BlockingPool("test")
    release = threading.Event()
    call = asyncio.create_task(pool.run(lambda: (release.wait(30), threading.current_thread().name)[1]))
    await asyncio.sleep(0)
    assert not call.done()
    release.set()
    assert (await call).startswith("test-")
    pool.close()


async def test_what_a_call_raises_reaches_its_caller() -> None:
    pool = BlockingPool("test")

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(InvalidArgumentError, match="bad"):
        await pool.run(fail, InvalidArgumentError("bad"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(fail, StopIteration())
    pool.close()


async def test_a_full_pool_refuses_at_once_instead_of_collecting_calls() -> None:
    pool = BlockingPool("slow cloud", threads=2, waiting=3)
    release = threading.Event()
    running = [asyncio.create_task(pool.run(release.wait, 30)) for _ in range(2)]
    await until(lambda: pool._threads == 2 and not pool._queue)  # both are in a thread, none waits
    waiting = [asyncio.create_task(pool.run(release.wait, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="all 2 threads are busy and 3 calls wait"):
        await pool.run(lambda: None)
    release.set()
    assert all(await asyncio.gather(*running, *waiting))
    assert await pool.run(lambda: 5) == 5
    pool.close()


async def test_a_caller_that_gives_up_leaves_the_pool_usable() -> None:
    pool = BlockingPool("test", threads=1)
    release = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pool.run(release.wait, 30)
    release.set()
    assert await pool.run(lambda: "next") == "next"
    pool.close()


async def test_a_call_that_is_given_up_while_it_waits_is_never_made() -> None:
    """R45: after an error nothing may be started."""
    pool = BlockingPool("test", threads=1)
    release, made = threading.Event(), threading.Event()
    busy = asyncio.create_task(pool.run(release.wait, 30))
    await until(lambda: pool._threads == 1 and not pool._queue)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pool.run(made.set)
    release.set()
    await busy
    await pool.run(lambda: None)  # whatever was queued before this has had its turn
    assert not made.is_set()
    pool.close()


async def test_many_calls_at_once_all_get_a_thread() -> None:
    pool = BlockingPool("test", threads=8)
    for _ in range(200):
        barrier = threading.Barrier(8)  # broken unless eight threads meet at it
        await asyncio.gather(*(pool.run(barrier.wait, 20) for _ in range(8)))
    pool.close()


async def test_leaving_the_program_from_a_call_is_only_that_calls_failure() -> None:
    pool = BlockingPool("test")
    with pytest.raises(RuntimeError, match="SystemExit"):
        await pool.run(sys.exit, 3)
    assert await pool.run(lambda: "still here") == "still here"
    pool.close()


async def test_a_closed_pool_takes_no_more_calls() -> None:
    pool = BlockingPool("test")
    pool.close()
    with pytest.raises(UnavailableError, match="closed"):
        await pool.run(lambda: None)


def test_a_hung_call_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, threading
from cloudgraft.sdk.common.event_loop import BlockingPool
async def main():
    pool = BlockingPool("hung")
    try:
        async with asyncio.timeout(0.05):
            await pool.run(threading.Event().wait)
    except TimeoutError:
        print("gave up", flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "gave up\n"


class Shelf(BlockingDriver):
    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}

    def create(self, spec: MachineSpec) -> Machine:
        machine = Machine(name=spec.name, machine_id=f"id-{spec.name}")
        self.machines[spec.name] = machine
        return machine

    def delete(self, machine: Machine) -> None:
        self.machines.pop(machine.name, None)

    def list(self) -> Sequence[Machine]:
        return tuple(self.machines.values())


async def test_a_blocking_driver_becomes_an_async_one_with_the_same_traits() -> None:
    shelf = Shelf()
    driver = as_driver(shelf)
    assert isinstance(driver, Driver)
    assert driver.traits is shelf.traits
    assert as_driver(driver) is driver
    await driver.start()
    machine = await driver.create(MachineSpec(name="m", group="g", user_data="token"))
    assert await driver.list() == (machine,)
    await driver.delete(machine)
    assert await driver.list() == ()
    with pytest.raises(UnsupportedError):
        await driver.shapes()
    with pytest.raises(UnsupportedError):
        await driver.prices()
    await driver.close()


def test_user_data_is_not_shown() -> None:
    assert "hunter2" not in repr(MachineSpec(name="m", group="g", user_data="hunter2"))


@pytest.mark.parametrize(("blocking", "asynchronous"), [(BlockingDriver, Driver), (BlockingProvider, Provider)])
def test_blocking_classes_state_the_same_contract(blocking: type, asynchronous: type) -> None:
    """An author reads the class that they subclass; the text must not drift from the other one."""
    methods = [name for name, value in vars(blocking).items() if not name.startswith("_") and callable(value)]
    assert {"start", "close"} < {*methods}
    for name in methods:
        assert getattr(blocking, name).__doc__ == getattr(asynchronous, name).__doc__, name
