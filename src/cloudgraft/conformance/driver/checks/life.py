"""How a driver begins and ends."""

from __future__ import annotations

import asyncio
from typing import Any

from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.driver.calls import Calls
from cloudgraft.conformance.driver.check import driver_check
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.stage import DriverStage, expect
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["CHECKS"]

_CLOSE = 5.0  # seconds that the engine gives a driver


@driver_check("D35", after=("traits_are_declared",))
async def it_starts_and_closes_twice(stage: DriverStage) -> None:
    """Two starts, two closes, and a close without a start do no harm."""
    unstarted = stage.unstarted()
    await _quietly(unstarted, "close", "without a start")
    driver = stage.unstarted()
    for verb, when in (("start", "the first time"), ("start", "a second time")):
        await _quietly(driver, verb, when)
    await driver.list()
    for when in ("the first time", "a second time"):
        await _quietly(driver, "close", when)


async def _quietly(calls: Calls, verb: str, when: str) -> None:
    try:
        await (calls.start() if verb == "start" else calls.close())
    except CloudgraftError as error:
        raise Violation(f"{verb}() {when} raised {error!r}") from error
    except Violation as error:
        raise Violation(f"{when}: {error}") from error


@driver_check("D36", after=(*LISTED, "it_starts_and_closes_twice"))
async def it_closes_while_calls_run(stage: DriverStage) -> None:
    """While calls run, close ends within seconds, and so do they: with an answer, or an error of the sdk."""
    driver = await stage.another()
    running: list[asyncio.Task[Any]] = [asyncio.create_task(driver.list()) for _ in range(3)]
    running += [asyncio.create_task(stage.create_once(stage.spec(), driver)) for _ in range(2)]
    try:
        await asyncio.sleep(0)  # now they are under way
        await _close(driver, min(_CLOSE, stage.settings.call_timeout.total_seconds() / 2))
        _, waiting = await asyncio.wait(running, timeout=stage.settings.call_timeout.total_seconds())
        expect(not waiting, f"{len(waiting)} calls never ended after close()")
    finally:
        for task in running:
            task.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
    for end in ends:
        if isinstance(end, Violation):
            raise Violation(f"when the driver was closed while calls ran, {end}")


async def _close(driver: Calls, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await driver.close()
    except TimeoutError:
        raise Violation(f"close() did not end within {seconds:g} s while calls were running") from None


CHECKS = (it_starts_and_closes_twice, it_closes_while_calls_run)
