"""Gives checks of a driver machines to create, lists to read, other drivers, and messages for failures."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from cloudgraft.conformance.check import Inconclusive, NotJudged, Violation
from cloudgraft.conformance.driver.denials import FULL, Denials, denies
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.driver.under_test import (
    PASSING,
    Calls,
    DriverUnderTest,
    Marks,
    OneDriver,
    certain_after,
    known,
    shut,
)
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    NotFoundError,
    RateLimitedError,
    Retry,
    UnavailableError,
)

T = TypeVar("T")
_STEP = 0.05  # seconds between two lists; ten times as much for a cloud whose list is late
_LONGEST_PAUSE = 30.0  # seconds, whatever a cloud asks for
_ATTEMPTS = 3  # creates with an unknown outcome that no list settled with a machine
_FREED = 5.0  # seconds in which a deleted machine may count against a quota although no list shows it


def expect(fact: object, message: str) -> None:
    """Fails the check with this message unless the condition holds."""
    if not fact:
        raise Violation(message)


class DriverStage:
    """The stage of one check: a started driver, and what else the check asks for."""

    def __init__(
        self, under_test: DriverUnderTest, one: OneDriver, exchanges: list[Exchange], stack: AsyncExitStack, needs: int
    ) -> None:
        """``stack`` ends with the check; ``needs`` is the most machines that it has at the same time."""
        self.calls = under_test.wrapped(one.calls, exchanges)
        self.exchanges = exchanges
        self.dice = random.Random(under_test.settings.seed)  # noqa: S311 - moments, not secrets
        self.specs: dict[str, MachineSpec] = {}  # by name: everything that this check asked for
        self.made: dict[str, Machine] = {}  # by machine id: answers of create, and what a list settled
        self._under_test = under_test
        self._one = one
        self._stack = stack
        self._needs = needs
        self._open: set[str] = set()  # names of creates whose outcome is unknown

    @property
    def settings(self) -> DriverSettings:
        """The author's settings."""
        return self._under_test.settings

    @property
    def traits(self) -> DriverTraits:
        """The driver's traits."""
        return self.calls.driver.traits

    @property
    def raw(self) -> AnyDriver | None:
        """The author's own object."""
        return self._under_test.raw

    @property
    def denials(self) -> Denials:
        """The creates of the whole run whose errors say that nothing was done."""
        return self._under_test.denials

    @property
    def marks(self) -> Marks:
        """The names and tags of this run."""
        return self._under_test.marks

    @property
    def delay(self) -> float:
        """How late a list may be, in seconds."""
        return self.traits.list_delay.total_seconds()

    @property
    def is_idempotent(self) -> bool:
        """Whether a second create is declared to be harmless."""
        return self.traits.idempotency is not Idempotency.NONE

    # -- machines ------------------------------------------------------------------------------------------------------

    def spec(self, group: str = "pool", *, marks: Marks | None = None, user_data: str = "") -> MachineSpec:
        """A new specification, with a name that is not used yet."""
        name = self.marks.new_name(group)
        tags = (marks or self.marks).tags(name, group)
        return MachineSpec(name=name, group=group, settings=self.settings.machine, tags=tags, user_data=user_data)

    def asked(self, machine: Machine) -> MachineSpec:
        """What the machine was created by: after an unknown outcome not the first specification."""
        return self.specs[machine.name]

    @property
    def has_quota(self) -> bool:
        """Whether the cloud refused a machine for want of room."""
        return self._under_test.room.allowed is not None

    def fitting(self, count: int) -> int:
        """So many machines beside another one, or as many as the cloud's quota allows."""
        allowed = self._under_test.room.allowed
        return count if allowed is None else max(1, min(count, allowed - 2))

    async def create(self, spec: MachineSpec | None = None, calls: Calls | None = None) -> Machine:
        """Creates a machine. Its name is another than the specification's if the first attempts came to nothing.

        An unknown outcome is settled by list, as the engine does. A passing error is met again with a new name, so that
        a machine that exists in spite of it stays visible. Waits for room while machines of the kit are being deleted.
        """
        asked, unknown = spec or self.spec(), 0
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        while True:
            try:
                return await self.create_once(asked, calls)
            except DeadlineError as error:
                if (found := await self.settled(asked, calls)) is not None:
                    return found
                unknown += 1
                if unknown == _ATTEMPTS:
                    raise Inconclusive(
                        f"the outcome of create() was unknown {unknown} times of {unknown}, and no list showed a "
                        f"machine ({error!r}): test when the cloud answers in time"
                    ) from error
            except FULL as error:
                await self._make_room(calls)
                await self._wait_for_room(error, give_up_at)
            except CloudgraftError as error:
                await self._wait_out(error, give_up_at, "create")
            asked = self._renamed(asked)

    async def create_again(self, spec: MachineSpec, calls: Calls | None = None) -> Machine | CloudgraftError:
        """A further create of the same name, as the engine makes it after a crash; errors of the driver are answers.

        So is DeadlineError, when several attempts had no other.
        """
        unknown = 0
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        while True:
            try:
                return await self.create_once(spec, calls)
            except DeadlineError as error:
                if not self.is_idempotent and (found := await self.settled(spec, calls)) is not None:
                    return found
                unknown += 1
                if unknown == _ATTEMPTS:
                    return error
            except FULL as error:
                await self._wait_for_room(error, give_up_at)
            except (RateLimitedError, UnavailableError) as error:
                await self._wait_out(error, give_up_at, "create")
            except CloudgraftError as error:
                return error

    async def create_once(self, spec: MachineSpec, calls: Calls | None = None) -> Machine:
        """Makes one call; remembers the machine, to delete it later."""
        run = self._under_test
        await self._settle_denials()
        self.specs[spec.name] = spec
        run.denials.began(spec.name)
        run.open_creates += 1
        run.last_create = time.monotonic()
        try:
            machine = await (calls or self.calls).create(spec)
        except BaseException as error:
            run.denials.ended(spec.name, error)
            if denies(error):
                run.open_creates -= 1
            else:
                self._open.add(spec.name)
            raise
        finally:
            run.last_create = time.monotonic()
        run.denials.ended(spec.name, None)
        run.open_creates -= 1
        if not isinstance(machine, Machine) or not isinstance(machine.machine_id, str) or not machine.machine_id:
            raise Violation(f"create() answered with {machine!r} instead of a Machine that has a machine_id")
        self.remember(machine)
        return machine

    async def settled(self, spec: MachineSpec, calls: Calls | None = None) -> Machine | None:
        """The machine of a create whose outcome is unknown, once a list must show it; None when there is none."""
        late = 0.0 if self.is_idempotent else self.settings.late.total_seconds()
        found = await self.find([spec.name], time.monotonic() + late, calls)
        for machine in found:
            self.remember(machine)
        return found[0] if found else None

    async def delete(self, machine: Machine, calls: Calls | None = None) -> None:
        """Deletes it as the engine does: NotFoundError counts as success, and passing errors are met again."""
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        while True:
            try:
                await (calls or self.calls).delete(known(machine))
            except NotFoundError:
                pass
            except CloudgraftError as error:
                await self._wait_out(error, give_up_at, "delete")
                continue
            self._under_test.last_delete = time.monotonic()
            return

    async def tidy(self) -> None:
        """Deletes what this check made, also by creates that were given up; where room is short, until it is gone."""
        if self._open:
            for machine in await self.settled_list(time.monotonic()):
                if machine.name in self.specs and is_alive(machine):
                    self.remember(machine)
        await self._under_test.tidy(self._one.calls, list(self.made.values()))
        if self.has_quota and self.made:
            seconds = self.settings.patience.total_seconds()
            await self.wait_for(lambda listed: all(m.machine_id not in self.made for m in listed), seconds)

    def remember(self, machine: Machine) -> None:
        """Takes the machine for one of this check, to delete it with the others."""
        self.made[machine.machine_id] = self._under_test.made[machine.machine_id] = machine
        self._open.discard(machine.name)

    def _renamed(self, spec: MachineSpec) -> MachineSpec:
        """The same machine under a name that is not used yet."""
        name = self.marks.new_name(spec.group)
        return replace(spec, name=name, tags={**spec.tags, "cloudgraft-name": name})

    # -- what the cloud does not allow ---------------------------------------------------------------------------------

    async def _settle_denials(self) -> None:
        """Waits while machines whose creates were denied, and that may exist, would be more than was announced."""
        run = self._under_test
        while run.denials.unsettled and run.room.is_exceeded_by(run.denials.unsettled):
            await self.list(time.monotonic())
            if run.denials.unsettled:
                await self.pause()

    async def _wait_out(self, error: CloudgraftError, give_up_at: float, verb: str) -> None:
        """Waits before the next attempt after an error that may pass; raises any other."""
        if not (error.retry is Retry.YES or isinstance(error, DeadlineError)):
            raise error
        if time.monotonic() >= give_up_at:
            if not isinstance(error, PASSING):
                raise error
            raise Inconclusive(
                f"{verb}() failed for {self.settings.patience.total_seconds():g} s with {error!r}: test when the cloud "
                "takes calls"
            ) from error
        await asyncio.sleep(min(error.retry_after or 10 * _STEP, _LONGEST_PAUSE))

    async def _make_room(self, calls: Calls | None) -> None:
        """Deletes machines of creates that were given up."""
        for machine in await self.list(time.monotonic(), calls):
            if machine.name in self._open and is_alive(machine):
                await self.delete(machine, calls)

    async def _wait_for_room(self, error: CloudgraftError, give_up_at: float) -> None:
        """Waits while other machines of the kit fill the account. Raises Inconclusive when they do not."""
        listed = [machine for machine in await self.list(time.monotonic()) if self.marks.is_ours(machine)]
        others = [machine for machine in listed if machine.name not in self.specs]
        freed_at = self._under_test.last_delete + self.delay + min(_FREED, self.settings.patience.total_seconds())
        is_waiting = others or self.denials.unsettled or (self._under_test.last_delete and time.monotonic() < freed_at)
        if not is_waiting or time.monotonic() >= give_up_at:
            own = max(len(self.made), sum(machine.name in self.specs for machine in listed))
            self._under_test.room.met_quota(own)
            raise Inconclusive(
                f"needs room for {self._needs} machines; the cloud refused number {own + 1}: {error.message}. Raise "
                "the quota, or test with fewer machines (--machines; at_once, interruptions, page_size)"
            ) from error
        await asyncio.sleep(10 * _STEP)

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def list(self, since: float, calls: Calls | None = None) -> Sequence[Machine]:
        """A list that begins at that moment or later, shared with other checks. Passing errors are met again."""
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        await asyncio.sleep(max(0.0, since - time.monotonic()))
        while True:
            try:
                if calls is not None and calls.driver is not self._one.calls.driver:
                    return await calls.list()
                listed = await self._under_test.together(self._one, since, self.exchanges)
            except PASSING as error:
                await self._wait_out(error, give_up_at, "list")
            else:
                await self._delete_denied(listed, since)
                return listed

    async def _delete_denied(self, listed: Sequence[Machine], since: float) -> None:
        """Deletes machines of denied creates as soon as a list shows them: they take room, and nobody else will."""
        denials = self.denials
        for machine in denials.seen(listed) if self.settings.is_lasting else ():
            if self.marks.is_ours(machine) and is_alive(machine):
                with contextlib.suppress(CloudgraftError, Violation, Inconclusive):  # swept at the end, and reported
                    await self.delete(machine)
        denials.settle(since - certain_after(0.0, self.calls))

    async def settled_list(self, since: float, calls: Calls | None = None) -> Sequence[Machine]:
        """A list that must show everything that ended before ``since``."""
        return await self.list(certain_after(since, self.calls), calls)

    async def find(self, names: Iterable[str], since: float, calls: Calls | None = None) -> Sequence[Machine]:
        """The machines of these names: from a list that has all names, or from one that would have to."""
        wanted = set(names)
        while True:
            began = time.monotonic()
            listed = await self.list(began, calls)
            found = [machine for machine in listed if machine.name in wanted]
            if wanted <= {machine.name for machine in found} or began >= certain_after(since, self.calls):
                return found
            await self.pause()

    async def the_one(self, name: str, since: float, calls: Calls | None = None) -> Machine:
        """The one machine of this name."""
        found = await self.find([name], since, calls)
        if not found and not self.traits.complete_list:
            raise NotJudged("the driver declares that a list need not show every machine, and it did not show this one")
        if not found and calls is None:  # what another driver does not list is its own matter
            await self.expect_listed([machine for machine in self.made.values() if machine.name == name], since)
        expect(found, f"no list shows {name}, {self.delay:g} s (list_delay) after it was created")
        expect(len(found) == 1, f"{len(found)} machines have the name {name}: {ids(found)}")
        return found[0]

    async def expect_listed(self, made: Sequence[Machine], since: float, calls: Calls | None = None) -> None:
        """Fails with the rules about the list when machines that create() answered with are missing from it."""
        if not self.traits.complete_list:
            return
        listed = {machine.machine_id for machine in await self.settled_list(since, calls)}
        there = [machine for machine in made if machine.machine_id in listed]
        if len(there) == len(made):
            return
        missing = ids(machine for machine in made if machine.machine_id not in listed)
        raise Violation(
            f"of {len(made)} machines that create() answered with, the list has {len(there)} {self.delay:g} s "
            f"(list_delay) later, in a list of {len(listed)}. It misses {missing}. Does list() read every page, and is "
            "list_delay long enough?",
            rules=("D27", "D4") if there else ("D4", "D27"),
        )

    async def wait_for(self, look: Callable[[Sequence[Machine]], bool], seconds: float) -> bool:
        """Whether a list came to show it in time."""
        give_up_at = time.monotonic() + seconds
        while not look(await self.list(time.monotonic())):
            if time.monotonic() >= give_up_at:
                return False
            await self.pause()
        return True

    async def pause(self) -> None:
        """Between two lists."""
        await asyncio.sleep(10 * _STEP if self.delay > 1 else _STEP)

    async def wait_until_gone(self, machine_ids: Iterable[str], seconds: float) -> Sequence[Machine]:
        """Machines that are neither absent nor being deleted after that time; empty as soon as there are none."""
        wanted = set(machine_ids)
        give_up_at = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            left = [m for m in await self.list(began) if m.machine_id in wanted and is_alive(m)]
            if not left or began >= give_up_at:
                return left
            await self.pause()

    # -- other drivers -------------------------------------------------------------------------------------------------

    async def another(self) -> Calls:
        """A second driver, started, closed with the check."""
        calls = await self._under_test.fresh(self.exchanges)
        self._stack.push_async_callback(shut, calls)
        return calls

    def unstarted(self, driver: AnyDriver | None = None) -> Calls:
        """A second driver, or this one, as it was made; closed with the check."""
        calls = self._under_test.unstarted(self.exchanges, driver)
        self._stack.push_async_callback(shut, calls)
        return calls


async def all_of(work: Iterable[Awaitable[T]]) -> tuple[list[T], Inconclusive | None]:
    """The results of calls at the same time, without those that the cloud did not allow, and why not."""
    ends = await asyncio.gather(*work, return_exceptions=True)
    results, unclear = list[T](), None
    for end in ends:
        if isinstance(end, Inconclusive):
            unclear = unclear or end
        elif isinstance(end, BaseException):
            raise end
        else:
            results.append(end)
    return results, unclear


def ids(machines: Iterable[Machine]) -> str:
    """For a message."""
    return ", ".join(str(machine.machine_id) for machine in machines) or "none"


def is_alive(machine: Machine) -> bool:
    """Not being deleted."""
    return machine.state is not MachineState.DELETING


def lost_tags(machine: Machine, tags: Mapping[str, str]) -> str:
    """The problems with a machine's tags; additional tags are fine. Empty when there are none."""
    shown = machine.tags if isinstance(machine.tags, Mapping) else {}
    wrong = [
        f"{key} is {shown.get(key)!r} instead of {value!r}" for key, value in tags.items() if shown.get(key) != value
    ]
    return "; ".join(wrong)
