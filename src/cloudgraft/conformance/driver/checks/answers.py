"""Checks a driver's answers: traits, create, list, ids, providerIDs, states, times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cloudgraft.conformance.check import Inconclusive, Violation
from cloudgraft.conformance.driver.denials import FULL
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.stage import DriverStage, expect, ids
from cloudgraft.conformance.driver.under_test import PASSING
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, Retry

CHECKS = driver_checks()

_ATTEMPTS = 5  # of the first list
_ANSWERS = 3  # creates whose outcome is unknown before there is no verdict
_LONGEST_DELAY = timedelta(hours=1)
_SKEW = timedelta(minutes=5)  # between the cloud's clock and ours
LISTED = ("list_makes_sense", "create_answers_with_the_machine", "a_new_machine_is_listed")


@CHECKS.check("D1", machines=0, first=True)
async def traits_are_declared(stage: DriverStage) -> None:
    """The traits are a DriverTraits, sane, and from start() on the same, in every instance."""
    traits: object = stage.traits
    expect(isinstance(traits, DriverTraits), f"traits is {traits!r} instead of a DriverTraits")
    expect(stage.traits.list_delay >= timedelta(0), f"list_delay is negative: {stage.traits.list_delay}")
    expect(
        stage.traits.list_delay <= _LONGEST_DELAY,
        f"list_delay is {stage.traits.list_delay}: the engine would wait that long after every lost answer",
    )
    second = await stage.another()
    expect(second.driver.traits == stage.traits, f"a second driver declares {second.driver.traits}: {stage.traits}")
    await _first_list(stage)
    expect(stage.traits == traits, f"the traits were {traits} and are {stage.traits} after the first call")


async def _first_list(stage: DriverStage) -> None:
    """A list, after a few attempts if need be: without one nothing can be judged."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            await stage.calls.list()
        except PASSING:
            if not left:
                raise
            await stage.pause()
        else:
            return


@CHECKS.check("D2", after=("traits_are_declared",), machines=0, first=True)
async def list_makes_sense(stage: DriverStage) -> None:
    """A list is a sequence of machines; each has an id that no other has, a MachineState, tags, and sane times."""
    _check_list(await stage.list(time.monotonic()))


def _check_list(listed: object) -> None:
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise Violation(f"list() answered with {type(listed).__name__} instead of a sequence of Machine")
    seen: set[str] = set()
    for machine in listed:
        if wrong := nonsense(machine):
            raise Violation(f"list() has {machine!r}: {wrong}")
        expect(machine.machine_id not in seen, f"list() has the machine_id {machine.machine_id!r} twice")
        seen.add(machine.machine_id)


def nonsense(machine: object) -> str:
    """The problem with the types of a machine's fields; the engine would discard the whole answer."""
    if not isinstance(machine, Machine):
        return "it is not a Machine"
    texts = {"machine_id": machine.machine_id, "name": machine.name, "provider_id": machine.provider_id or ""}
    for key, value in texts.items():
        if not isinstance(value, str) or "\0" in value or value != value.encode("utf-8", "replace").decode():
            return f"its {key} is not a text that can be stored"
    if not machine.machine_id:
        return "its machine_id is empty"
    if not isinstance(machine.state, MachineState):
        return f"its state is {machine.state!r} instead of a MachineState"
    if machine.created_at is not None and not isinstance(machine.created_at, datetime):
        return f"its created_at is {machine.created_at!r} instead of a datetime or None"
    return "" if isinstance(machine.tags, Mapping) else "its tags are not a mapping"


@CHECKS.check("D3", after=("list_makes_sense",), first=True)
async def create_answers_with_the_machine(stage: DriverStage) -> None:
    """Create answers with a machine that has an id, the name that was asked for, and a state that is not an end."""
    spec, machine = await _answered(stage)
    if wrong := nonsense(machine):
        raise Violation(f"create() answered with {machine!r}: {wrong}")
    expect(machine.name == spec.name, f"create() was asked for {spec.name!r} and answered with {machine.name!r}")
    is_fine = machine.state in (MachineState.PENDING, MachineState.RUNNING)
    expect(is_fine, f"create() answered with a machine that is {machine.state.name}; raise an error instead")


async def _answered(stage: DriverStage) -> tuple[MachineSpec, Machine]:
    """The first answer of create, with what was asked for. A machine that only a list showed is no answer."""
    unknown = 0
    while True:
        spec = stage.spec()
        try:
            return spec, await stage.create_once(spec)
        except DeadlineError as error:
            unknown += 1
            await stage.settled(spec)
            if unknown == _ANSWERS:
                raise Inconclusive(
                    f"the outcome of create() was unknown {unknown} times of {unknown}, so no answer could be judged "
                    f"({error!r}): test when the cloud answers in time"
                ) from error
        except CloudgraftError as error:
            if not (isinstance(error, FULL) or error.retry is Retry.YES):
                raise
            machine = await stage.create()
            return stage.asked(machine), machine


@CHECKS.check("D4", "D2", after=("create_answers_with_the_machine",), first=True)
async def a_new_machine_is_listed(stage: DriverStage) -> None:
    """A machine is in every list that begins list_delay after its create ended, under the name that was asked for."""
    spec = stage.asked(await stage.create())
    ended = time.monotonic()
    await stage.the_one(spec.name, ended)
    listed = await stage.settled_list(ended)
    _check_list(listed)
    if stage.traits.complete_list:
        is_there = any(machine.name == spec.name for machine in listed)
        expect(is_there, f"an earlier list had {spec.name}, and one that began list_delay after its create has not")


@CHECKS.check("D5", after=LISTED, machines=2, first=True)
async def machine_ids_are_their_own(stage: DriverStage) -> None:
    """A machine has the same id in create's answer and in every list, and two machines have two."""
    first, second = await stage.create(), await stage.create()
    made = {machine.name: machine for machine in (first, second)}
    ended = time.monotonic()
    expect(first.machine_id != second.machine_id, f"two machines have one id: {ids(made.values())}")
    for _ in range(2):
        for machine in await stage.find(made, ended):
            answered = made[machine.name].machine_id
            expect(
                answered == machine.machine_id,
                f"create() said machine_id {answered!r}, list() says {machine.machine_id!r}",
            )


@CHECKS.check("D6", after=("machine_ids_are_their_own",), machines=2)
async def provider_ids_hold(stage: DriverStage) -> None:
    """A providerID follows the declared format, never changes once known, and is no other machine's."""
    known: dict[str, str] = {}
    made = [await stage.create() for _ in range(2)]
    for machine in made:
        _note(stage, machine, known)
    ended = time.monotonic()
    for _ in range(3):
        for machine in await stage.find([machine.name for machine in made], ended):
            _note(stage, machine, known)
        await stage.pause()
    expect(
        len(set(known.values())) == len(known),
        f"two machines have one providerID: {sorted(known.values())}",
    )


def _note(stage: DriverStage, machine: Machine, known: dict[str, str]) -> None:
    promised = stage.traits.provider_id.replace("{name}", machine.name)
    if not machine.provider_id:
        gone = known.get(machine.name)
        expect(gone is None, f"{machine.name} had the providerID {gone!r}, and none in a later list")
        return
    expect(
        not promised or machine.provider_id == promised,
        f"the traits promise the providerID {promised!r}, and the machine has {machine.provider_id!r}",
    )
    before = known.setdefault(machine.name, machine.provider_id)
    expect(
        before == machine.provider_id,
        f"the providerID of {machine.name} was {before!r} and is {machine.provider_id!r} in a later answer",
    )


@CHECKS.check("D7", after=("provider_ids_hold",))
async def a_machine_gets_to_running(stage: DriverStage) -> None:
    """A machine comes to be shown as RUNNING, with its providerID, within the boot time that the author says."""
    spec = stage.asked(await stage.create())
    seen = "missing"

    def is_up(listed: Sequence[Machine]) -> bool:
        nonlocal seen
        for machine in listed:
            if machine.name == spec.name:
                seen = f"{machine.state.name} with the providerID {machine.provider_id!r}"
                expect(
                    machine.state is not MachineState.FAILED, f"it failed: {machine.reason or 'no reason was given'}"
                )
                return machine.state is MachineState.RUNNING and bool(machine.provider_id)
        return False

    seconds = stage.settings.boot_time.total_seconds()
    is_in_time = await stage.wait_for(is_up, seconds + stage.delay)
    expect(
        is_in_time, f"after {seconds:g} s (boot_time) the machine is {seen}, and should be RUNNING with a providerID"
    )


@CHECKS.check("D8", after=LISTED)
async def created_at_is_when_it_was_made(stage: DriverStage) -> None:
    """created_at is None, or a time with its zone, near the moment of the create, and the same in every answer."""
    began = datetime.now(UTC)
    machine = await stage.create()
    seen = [machine.created_at]
    ended = time.monotonic()
    latest = datetime.now(UTC) + _SKEW
    seen += [(await stage.the_one(machine.name, ended)).created_at for _ in range(2)]
    moments = [moment for moment in seen if moment is not None]
    for moment in moments:
        expect(moment.tzinfo is not None, f"created_at is {moment}, without a time zone: whose clock is that?")
        expect(began - _SKEW <= moment <= latest, f"created_at is {moment}, and the machine was made at {began}")
    is_steady = not moments or max(moments) - min(moments) <= timedelta(seconds=1)
    expect(is_steady, f"created_at changes from answer to answer: {', '.join(map(str, moments))}")
