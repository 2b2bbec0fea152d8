"""Gives checks of a driver machines to create, lists to read, other drivers, and messages for failures."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

from cloudgraft.conformance.check import Checks, NotJudged, Violation
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.driver.under_test import Calls, DriverUnderTest, Marks, certain_after, known, shut
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, OutOfStockError, QuotaExceededError, Retry

_STEP = 0.05  # seconds between two lists; ten times as much for a cloud whose list is late
_FULL = (QuotaExceededError, OutOfStockError)


def expect(fact: object, message: str) -> None:
    """Fails the check with this message unless the condition holds."""
    if not fact:
        raise Violation(message)


class DriverStage:
    """The stage of one check: a started driver, and what else the check asks for."""

    def __init__(
        self, under_test: DriverUnderTest, calls: Calls, exchanges: list[Exchange], stack: AsyncExitStack
    ) -> None:
        """``stack`` ends with the check."""
        self.calls = calls
        self.exchanges = exchanges
        self.is_harmed = False  # True: the driver is not used for another check
        self.dice = random.Random(under_test.settings.seed)  # noqa: S311 - moments, not secrets
        self._under_test = under_test
        self._stack = stack

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

    async def create(self, spec: MachineSpec | None = None, calls: Calls | None = None) -> Machine:
        """Creates it with the engine's retries; waits for capacity while our own machines are being deleted."""
        asked = spec or self.spec()
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        while True:
            try:
                return await self.create_once(asked, calls)
            except CloudgraftError as error:
                is_ours = isinstance(error, _FULL) and self._under_test.last_delete > 0
                if time.monotonic() >= give_up_at or not (is_ours or error.retry is Retry.YES):
                    raise
                await asyncio.sleep(error.retry_after or 10 * _STEP)

    async def create_once(self, spec: MachineSpec, calls: Calls | None = None) -> Machine:
        """Makes one call; remembers the machine, to delete it later."""
        self._under_test.open_creates += 1
        self._under_test.last_create = time.monotonic()
        try:
            machine = await (calls or self.calls).create(spec)
        except CloudgraftError as error:
            self._under_test.open_creates -= error.retry is not Retry.SETTLE_FIRST
            raise
        finally:
            self._under_test.last_create = time.monotonic()
        self._under_test.open_creates -= 1
        if not isinstance(machine, Machine) or not isinstance(machine.machine_id, str) or not machine.machine_id:
            raise Violation(f"create() answered with {machine!r} instead of a Machine that has a machine_id")
        self._under_test.made[machine.machine_id] = machine
        return machine

    async def delete(self, machine: Machine, calls: Calls | None = None) -> None:
        """Deletes it as the engine does: NotFoundError counts as success, and transient errors are retried."""
        give_up_at = time.monotonic() + self.settings.patience.total_seconds()
        while True:
            try:
                await (calls or self.calls).delete(known(machine))
            except NotFoundError:
                pass
            except CloudgraftError as error:
                if error.retry is not Retry.YES or time.monotonic() >= give_up_at:
                    raise
                await asyncio.sleep(error.retry_after or 10 * _STEP)
                continue
            self._under_test.last_delete = time.monotonic()
            return

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def settled_list(self, since: float, calls: Calls | None = None) -> Sequence[Machine]:
        """A list that must show everything that ended before ``since``."""
        await asyncio.sleep(max(0.0, certain_after(since, self.calls) - time.monotonic()))
        return await (calls or self.calls).list()

    async def find(self, names: Iterable[str], since: float, calls: Calls | None = None) -> Sequence[Machine]:
        """The machines of these names: from a list that has all names, or from one that would have to."""
        wanted = set(names)
        while True:
            began = time.monotonic()
            listed = await (calls or self.calls).list()
            found = [machine for machine in listed if machine.name in wanted]
            if wanted <= {machine.name for machine in found} or began >= certain_after(since, self.calls):
                return found
            await self.pause()

    async def the_one(self, name: str, since: float, calls: Calls | None = None) -> Machine:
        """The one machine of this name."""
        found = await self.find([name], since, calls)
        if not found and not self.traits.complete_list:
            raise NotJudged("the driver declares that a list need not show every machine, and it did not show this one")
        expect(found, f"no list shows {name}, {self.delay:g} s (list_delay) after it was created")
        expect(len(found) == 1, f"{len(found)} machines have the name {name}: {ids(found)}")
        return found[0]

    async def wait_for(self, look: Callable[[Sequence[Machine]], bool], seconds: float) -> bool:
        """Whether a list came to show it in time."""
        give_up_at = time.monotonic() + seconds
        while not look(await self.calls.list()):
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
            left = [
                machine for machine in await self.calls.list() if machine.machine_id in wanted and is_alive(machine)
            ]
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


def driver_checks() -> Checks[DriverStage]:
    """A list for checks of drivers."""
    return Checks(DRIVER_RULES)
