"""Checks calls that are cancelled midway, and that no call blocks the event loop."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.denials import denies
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.stage import DriverStage, expect, ids, lost_tags
from cloudgraft.conformance.driver.under_test import Calls, known, shut
from cloudgraft.sdk.driver import Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, DeadlineError

CHECKS = driver_checks()

# -- blocked event loop ------------------------------------------------------------------------------------------------
# Finds out whether a call blocks the event loop, and where. A second thread judges: a busy computer is no proof.


_TICK = 0.02  # seconds
_STUCK = 20  # ticks of the watching thread, each of them on time, in which the event loop did not tick once


class StallWatch:
    """``async with`` it around calls; then ``place`` is where the event loop was blocked, or empty."""

    def __init__(self) -> None:
        self.place = ""
        self._beats = 0
        self._over = threading.Event()
        self._loop_thread = 0

    async def __aenter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._heart = asyncio.create_task(self._beat())
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._heart.cancel()
        self._thread.join(timeout=5)

    async def _beat(self) -> None:
        while True:
            self._beats += 1
            await asyncio.sleep(_TICK / 2)

    def _watch(self) -> None:
        seen, stuck = -1, 0
        at = time.monotonic()
        while not self._over.wait(_TICK) and not self.place:
            before, at = at, time.monotonic()
            if self._beats != seen:
                seen, stuck = self._beats, 0
            elif at - before < 2 * _TICK:  # we got our turn in time, so the loop's thread could have had one too
                stuck += 1
            if stuck >= _STUCK:
                self.place = self._where()

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to see another thread's stack
        if frame is None:
            return "an unknown place"
        stack = traceback.extract_stack(frame)
        own = [place for place in stack if not _is_library(place.filename)]
        last = own[-1] if own else stack[-1]
        return f"{last.filename}:{last.lineno} in {last.name}"


def _is_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(sysconfig.get_paths()["stdlib"])


# -- interrupted calls -------------------------------------------------------------------------------------------------
# Calls that end midway: by cancellation, or because the program that makes them ends.


_SOON = 5.0  # seconds within which a cancelled call must end
_CANCELLED = 6  # creates
_CRASHES = 2  # the program is restarted after each
_TURNS = (1, 2, 3, 5, 8, 13)  # of the event loop

_AGAIN = ("a_second_create_adds_nothing", "a_second_create_is_answered_as_declared", "two_creates_of_one_name_at_once")

Moment = Callable[[], Awaitable[None]]


def _moments(stage: DriverStage, count: int, took: float) -> list[Moment]:
    """The moments of cancellation: after a few turns of the event loop, and at random times during such a call."""

    def after_turns(turns: int) -> Moment:
        async def wait() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        return wait

    def after_seconds(seconds: float) -> Moment:
        return lambda: asyncio.sleep(seconds)

    by_turn = [after_turns(turns) for turns in _TURNS[: (count + 1) // 2]]
    return by_turn + [after_seconds(stage.dice.uniform(0.0, 1.1 * took)) for _ in range(count - len(by_turn))]


async def _timed(stage: DriverStage) -> float:
    """How long a create takes. The machine is deleted: it would only take room."""
    began = time.monotonic()
    machine = await stage.create()
    took = time.monotonic() - began
    await stage.delete(machine)
    return took


async def _cancelled(stage: DriverStage, call: Awaitable[Any], moment: Moment, verb: str) -> object:
    """Cancels the call at that moment; returns how it ended, None for cancelled."""
    soon = min(_SOON, stage.settings.call_timeout.total_seconds() / 2)
    task = asyncio.ensure_future(call)
    await moment()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=soon)
    if not done:
        task.cancel()  # once more: it should not outlive the check
    expect(done, f"{verb}() was cancelled and still ran {soon:g} s later")
    if task.cancelled():
        return None
    error = task.exception()
    if isinstance(error, Violation):
        raise error
    return error or task.result()


@CHECKS.check("D22", after=LISTED, alone=True)
async def the_event_loop_is_free(stage: DriverStage) -> None:
    """No call keeps the event loop from doing other work meanwhile."""
    async with StallWatch() as watch:
        machine = await stage.create()
        await stage.list(time.monotonic())
        await stage.delete(machine)
    expect(not watch.place, f"the event loop stood still for a while, at {watch.place}")


@CHECKS.check("D19", after=LISTED, machines=_CANCELLED + 1, harms=True)
async def a_cancelled_call_ends(stage: DriverStage) -> None:
    """A call that is cancelled ends within seconds, as cancelled or with what is really so."""
    took = await _timed(stage)
    denied: list[str] = []
    for moment in _moments(stage, stage.fitting(_CANCELLED), took):
        spec = stage.spec()
        end = await _cancelled(stage, stage.create_once(spec), moment, "create")
        if denies(end if isinstance(end, BaseException) else None):
            denied.append(spec.name)
        await _cancelled(stage, stage.calls.list(), moment, "list")
    if denied:
        await asyncio.sleep(stage.settings.late.total_seconds())
        made = await stage.find(denied, time.monotonic())
        stage.denials.forget(denied)
        for machine in made:
            stage.remember(machine)
        expect(not made, f"cancelled creates said that nothing was done, and these machines are there: {ids(made)}")


@CHECKS.check("D20", after=("a_cancelled_call_ends",), machines=_CANCELLED + 2, harms=True)
async def it_works_after_cancelled_calls(stage: DriverStage) -> None:
    """After creates, lists and deletes were cancelled, the driver still creates, lists and deletes."""
    began = time.monotonic()
    doomed = await stage.create()
    for moment in _moments(stage, stage.fitting(_CANCELLED), time.monotonic() - began):
        await _cancelled(stage, stage.create_once(stage.spec()), moment, "create")
        await _cancelled(stage, stage.calls.list(), moment, "list")
        await _cancelled(stage, stage.calls.delete(known(doomed)), moment, "delete")
    if stage.has_quota:
        await stage.tidy()  # cancelled creates may have filled the account
    machine = await stage.create()
    await stage.the_one(machine.name, time.monotonic())
    await stage.delete(machine)


@CHECKS.check(
    "D21",
    after=("a_cancelled_call_ends", "marks_come_back", *_AGAIN),
    machines=lambda settings: settings.interruptions + 1,
    harms=True,
)
async def a_create_that_was_given_up_adds_one_at_most(stage: DriverStage) -> None:
    """After a create was given up there is at most one machine, with our marks; after another create exactly one."""
    count = stage.fitting(stage.settings.interruptions)
    took = await _timed(stage)
    specs = [stage.spec() for _ in range(count)]
    for spec, moment in zip(specs, _moments(stage, count, took), strict=True):
        await _cancelled(stage, stage.create_once(spec), moment, "create")
    await _expect_one_each(stage, specs, stage.calls)


async def _expect_one_each(stage: DriverStage, specs: Sequence[MachineSpec], calls: Calls) -> None:
    """Acts as the engine after a crash: lists, creates again what is missing, and lists again."""
    if not stage.is_idempotent:
        await asyncio.sleep(stage.settings.late.total_seconds())
    found = await _at_most_one(stage, specs, calls, "after a create that was given up")
    answered: list[Machine] = []
    for spec in specs:
        # Where a second create would double, only what is absent is created; elsewhere that must be safe for all.
        if stage.is_idempotent or spec.name not in found:
            end = await stage.create_again(spec, calls)
            if isinstance(end, CloudgraftError) and not isinstance(end, AlreadyExistsError | DeadlineError):
                raise end
            if isinstance(end, Machine):
                answered.append(end)
    await stage.expect_listed(answered, time.monotonic(), calls)
    again = await _at_most_one(stage, specs, calls, "after another create")
    lacking = [spec.name for spec in specs if spec.name not in again]
    if stage.traits.complete_list:
        expect(
            not lacking, f"these were created again after a create that was given up, and no list has them: {lacking}"
        )


async def _at_most_one(
    stage: DriverStage, specs: Sequence[MachineSpec], calls: Calls, when: str
) -> dict[str, Sequence[Machine]]:
    found: dict[str, list[Machine]] = {}
    wanted = {spec.name: spec for spec in specs}
    for machine in await stage.settled_list(time.monotonic(), calls):
        spec = wanted.get(machine.name) or wanted.get(machine.tags.get("cloudgraft-name", ""))
        if spec is None:
            continue
        twins = found.setdefault(spec.name, [])
        twins.append(machine)
        expect(len(twins) == 1, f"{when} there are two machines for {spec.name}: {ids(twins)}")
        wrong = lost_tags(machine, spec.tags) if stage.traits.ownership is Ownership.TAGS else ""
        expect(not wrong, f"{when} there is a machine without its marks, which must never be deleted: {wrong}")
    return dict(found)


@CHECKS.check("D21", after=("a_create_that_was_given_up_adds_one_at_most",), machines=_CRASHES + 1, alone=True)
async def a_crash_in_mid_create_adds_one_at_most(stage: DriverStage) -> None:
    """After the driver's program was killed in mid-create the same holds, seen by a new one."""
    if stage.settings.crash is None:
        raise NotJudged("no `crash` was given: how to end the driver's program at once")
    took = await _timed(stage)
    specs = [stage.spec() for _ in range(_CRASHES)]
    for spec, moment in zip(specs, _moments(stage, _CRASHES, took), strict=True):
        driver = await stage.another()
        task = asyncio.create_task(stage.create_once(spec, driver))
        await moment()
        await stage.settings.crash(driver.driver)
        await asyncio.wait({task}, timeout=stage.settings.call_timeout.total_seconds())
        if not task.done() or isinstance(task.exception(), Violation):
            task.cancel()
            raise Violation("create() did not end with an error of the sdk after the driver's program was killed")
        await shut(driver)
    await _expect_one_each(stage, specs, await stage.another())
