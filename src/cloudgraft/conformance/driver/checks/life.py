"""Checks how a driver starts and stops, and its shapes and prices."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.stage import DriverStage, expect
from cloudgraft.conformance.driver.under_test import Calls
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity

CHECKS = driver_checks()
OFFERS_CHECKS = driver_checks()

# -- start and close ---------------------------------------------------------------------------------------------------


_CLOSE = 5.0  # seconds that the engine gives a driver


@CHECKS.check("D35", after=("traits_are_declared",), machines=0, alone=True)
async def it_starts_and_closes_twice(stage: DriverStage) -> None:
    """Two starts, two closes, and a close without a start do no harm."""
    unstarted = stage.unstarted()
    await _quietly(unstarted, "close", "without a start")
    driver = stage.unstarted()
    for verb, when in (("start", "the first time"), ("start", "a second time")):
        await _quietly(driver, verb, when)
    await stage.list(time.monotonic(), driver)
    for when in ("the first time", "a second time"):
        await _quietly(driver, "close", when)


async def _quietly(calls: Calls, verb: str, when: str) -> None:
    try:
        await (calls.start() if verb == "start" else calls.close())
    except CloudgraftError as error:
        raise Violation(f"{verb}() {when} raised {error!r}") from error
    except Violation as error:
        raise Violation(f"{when}: {error}") from error


@CHECKS.check("D36", after=(*LISTED, "it_starts_and_closes_twice"), machines=2, alone=True)
async def it_closes_while_calls_run(stage: DriverStage) -> None:
    """While calls run, close ends within seconds, and so do they: with an answer, or an error of the sdk."""
    driver = await stage.another()
    running: list[asyncio.Task[Any]] = [asyncio.create_task(driver.list()) for _ in range(3)]
    running += [asyncio.create_task(stage.create_once(stage.spec(), driver)) for _ in range(2)]
    try:
        await asyncio.sleep(0)  # now they have begun
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


# -- shapes and prices -------------------------------------------------------------------------------------------------


_NEEDED = ("cpu", "memory")


@OFFERS_CHECKS.check("D33", after=("traits_are_declared",), machines=0)
async def shapes_are_sane(stage: DriverStage) -> None:
    """Each shape is there once, holds cpu and memory as Quantities, and the one under test is among them."""
    shapes = await _shapes(stage)
    for shape in shapes:
        _check_shape(shape)
    twice = [name for name, count in Counter(shape.name for shape in shapes).items() if count > 1]
    expect(not twice, f"shapes() has these more than once: {', '.join(twice)}")
    wanted = stage.settings.machine.get("shape")
    names = [shape.name for shape in shapes]
    expect(wanted is None or wanted in names, f"the shape {wanted!r} can be created, and shapes() has only {names}")


async def _shapes(stage: DriverStage) -> Sequence[Shape]:
    try:
        shapes: object = await stage.calls.shapes()
    except UnsupportedError:
        raise NotJudged("the driver declares that it does not know its cloud's shapes") from None
    if not isinstance(shapes, Sequence) or not all(isinstance(shape, Shape) for shape in shapes):
        raise Violation(f"shapes() answered with {shapes!r} instead of a sequence of Shape")
    return shapes


def _check_shape(shape: Shape) -> None:
    capacity: object = shape.capacity
    is_named = isinstance(shape.name, str) and bool(shape.name)
    expect(is_named and isinstance(capacity, Mapping), f"shapes() has {shape!r}, without a name or a capacity")
    for resource, amount in shape.capacity.items():
        is_amount = isinstance(amount, Quantity)
        expect(is_amount, f"the shape {shape.name!r} has {amount!r} as {resource}: write Quantity({str(amount)!r})")
        expect(amount.value >= 0, f"the shape {shape.name!r} has {amount} as {resource}")
    lacking = [key for key in _NEEDED if key not in shape.capacity or not shape.capacity[key].value]
    expect(not lacking, f"the shape {shape.name!r} has no {' and no '.join(lacking)}: no pod would fit")
    is_mapping = isinstance(shape.labels, Mapping)
    expect(is_mapping, f"the labels of the shape {shape.name!r} are not a mapping")


@OFFERS_CHECKS.check("D34", after=("traits_are_declared",), machines=0)
async def prices_are_sane(stage: DriverStage) -> None:
    """Each shape has one price at most, a Decimal that is not negative, and all are in one currency."""
    try:
        prices: object = await stage.calls.prices()
    except UnsupportedError:
        raise NotJudged("the driver declares that it does not know its cloud's prices") from None
    if not isinstance(prices, Sequence) or not all(isinstance(price, Price) for price in prices):
        raise Violation(f"prices() answered with {prices!r} instead of a sequence of Price")
    for price in prices:
        is_amount = isinstance(price.hourly, Decimal) and price.hourly.is_finite() and price.hourly >= 0
        expect(is_amount, f"the price of {price.shape!r} is {price.hourly!r}: a Decimal that is not negative is needed")
    twice = [name for name, count in Counter(price.shape for price in prices).items() if count > 1]
    expect(not twice, f"prices() has these shapes more than once: {', '.join(twice)}")
    currencies = sorted({str(price.currency) for price in prices})
    is_one = len(currencies) <= 1 and "" not in currencies
    expect(is_one, f"prices() must be in one currency, and is in {currencies}")
