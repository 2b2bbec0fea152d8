"""Makes the calls to one cloud, limited in concurrency, rate and time, and turns every end into an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.groups.desired import Catalog
from cloudgraft.engine.groups.specs import CloudSettings, create_limit
from cloudgraft.engine.machines.outcomes import (
    Created,
    CreateFailed,
    Deleted,
    DeleteFailed,
    NotAsked,
    Outcome,
    check_created,
    check_machine,
    check_prices,
    check_shapes,
)
from cloudgraft.engine.machines.traces import MachineTraces
from cloudgraft.engine.reconcile.call_statistics import OK, CallStatistics
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import contained, in_slices, within
from cloudgraft.sdk.common.failure_log import FailureLog
from cloudgraft.sdk.common.tracing import describe, step
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.list_budget import ListBudget
from cloudgraft.store.records import MachineRecord

log = logging.getLogger("cloudgraft.engine")

T = TypeVar("T")
_CLOSE = 5.0  # seconds
_USER_DATA = "making user data"
_LOOKING = frozenset({"start", "list", "shapes", "prices"})  # read-only calls
_SLICE = 100  # machines checked before the event loop gets control


class Caller:
    """Makes the calls of one cloud."""

    def __init__(
        self,
        driver: Driver,
        settings: CloudSettings,
        clock: Clock,
        *,
        may_act: Callable[[], bool],
        on_outcome: Callable[[], None],
        traces: MachineTraces | None = None,
    ) -> None:
        """``may_act`` is checked before every call; ``on_outcome`` is called when there is an outcome to take."""
        self.settings = settings
        self.statistics = CallStatistics()
        self._driver = driver
        self._clock = clock
        self._may_act = may_act
        self._on_outcome = on_outcome
        self._traces = traces
        self._tasks: set[asyncio.Task[None]] = set()  # creates and deletes
        self._outcomes: list[tuple[str, Outcome]] = []
        self._failures = FailureLog(log)
        self._next_at = 0.0
        self._is_started = False

    @property
    def traits(self) -> DriverTraits:
        """The traits that the driver declares."""
        return self._driver.traits

    @property
    def under_way(self) -> int:
        """The number of creates and deletes under way."""
        return len(self._tasks)

    @property
    def _most(self) -> int:
        """The number of creates and deletes at once: no more than the driver takes, so that none waits inside it."""
        declared = self.traits.max_calls
        return self.settings.max_calls if declared is None else min(declared, self.settings.max_calls)

    def free(self, now: float) -> int:
        """The number of calls that may be made now."""
        slots = max(0, self._most - len(self._tasks))
        if self.settings.calls_per_second is None:
            return slots
        return min(slots, 1) if now >= self._next_at else 0

    def wake_at(self) -> float | None:
        """When the rate limit allows another call; None when it does not hold one back."""
        is_full = len(self._tasks) >= self._most
        return None if is_full or self.settings.calls_per_second is None else self._next_at

    def take(self) -> Sequence[tuple[str, Outcome]]:
        """Takes the new outcomes, each with the name of its machine."""
        taken, self._outcomes = self._outcomes, []
        return taken

    def create(self, record: MachineRecord, prepare: Callable[[], Awaitable[str]] | None = None) -> None:
        """Starts to create the machine of this record, which the journal already has.

        ``prepare`` makes its user data right before the call, within half of the call's timeout. A slow cluster must
        not leave the cloud so little time that every create times out with an unknown outcome.
        """
        self._begin(record.name, self._create(record, prepare))

    def delete(self, name: str, machine: Machine) -> None:
        """Starts to delete a machine; ``name`` is the name of its record."""
        self._begin(name, self._delete(name, machine))

    def remove(self, machine: Machine) -> asyncio.Task[None]:
        """Starts to delete a machine without a record; the task has the result of the call."""
        seconds = self.settings.delete_timeout.total_seconds()
        task = asyncio.create_task(self._call("delete", seconds, lambda: self._driver.delete(machine)))
        self._track(task)
        return task

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> asyncio.Task[None]:
        """Starts to set or remove tags of a machine; the task has the result of the call."""
        seconds = self.settings.delete_timeout.total_seconds()
        task = asyncio.create_task(self._call("mark", seconds, lambda: self._driver.mark(machine, tags)))
        self._track(task)
        return task

    async def room(self) -> None:
        """Waits until one more call may be made."""
        while not self.free(self._clock.now()):
            at = self.wake_at()
            if at is None:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(max(0.0, at - self._clock.now()))

    async def list(self) -> Sequence[Machine]:
        """Lists all machines of the cloud; raises CloudgraftError."""
        seconds = self.settings.list_timeout.total_seconds()
        if not self._is_started:
            await self._call("start", seconds, self._driver.start)
            self._is_started = True
        return await _checked(await self._budgeted("list", self._driver.list))

    async def catalog(self) -> Catalog:
        """Reads the cloud's machine types and prices; empty for a driver that reports none."""
        shapes = check_shapes(await self._ask("shapes", self._driver.shapes))
        prices = check_prices(await self._ask("prices", self._driver.prices))
        return Catalog(shapes={shape.name: shape for shape in shapes}, prices=tuple(prices))

    async def settled(self) -> None:
        """Waits for the calls under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, seconds: float) -> None:
        """Gives calls under way some time to end, then abandons them: lists show their outcome after the restart."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        await self.settled()

    async def close(self) -> None:
        """Closes the driver, with a timeout for one that hangs."""
        try:
            async with asyncio.timeout(_CLOSE):
                await contained(self._driver.close())
        except Exception as error:  # noqa: BLE001 - the driver is abandoned
            log.warning("a driver did not close", extra={"cloud": self.settings.name, "error": type(error).__name__})

    async def _ask(self, verb: str, call: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T]:
        try:
            return await self._budgeted(verb, call)
        except UnsupportedError:
            return ()

    async def _budgeted(self, verb: str, call: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T]:
        """Reads a list, limited in entries, bytes and time: see :mod:`sdk.list_budget`."""
        settings = self.settings
        seconds = settings.list_timeout.total_seconds()
        budget = ListBudget(machines=settings.max_list_machines, size=settings.max_list_bytes, seconds=seconds)
        return await budget.limited(self._call(verb, seconds, call))

    def _begin(self, name: str, call: Awaitable[Outcome]) -> None:
        self._track(asyncio.create_task(self._end(name, call)))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if self.settings.calls_per_second is not None:
            self._next_at = max(self._next_at, self._clock.now()) + 1 / self.settings.calls_per_second

    async def _end(self, name: str, call: Awaitable[Outcome]) -> None:
        with self._traces.within(name) if self._traces is not None else nullcontext():
            outcome = await call  # first: take() may put another list in place meanwhile
        self._outcomes.append((name, outcome))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because no caller may wait for it
        self._on_outcome()

    async def _create(self, record: MachineRecord, prepare: Callable[[], Awaitable[str]] | None) -> Outcome:
        ends = asyncio.get_running_loop().time() + create_limit(self.settings, self.traits)
        try:
            with step("make user data", {}) if prepare is not None else nullcontext():
                user_data = await self._prepared(prepare)
        except CloudgraftError as error:
            return NotAsked(error)
        spec = MachineSpec(
            name=record.name, group=record.group, settings=record.settings, tags=record.tags, user_data=user_data
        )
        seconds = max(0.0, ends - asyncio.get_running_loop().time())
        try:
            answer = await self._call("create", seconds, lambda: self._driver.create(spec), machine=spec.name)
            made = check_created(answer, spec.name)
        except CloudgraftError as error:
            return CreateFailed(error)
        describe({"cloudgraft.machine_id": made.machine_id})
        return Created(made)

    async def _prepared(self, prepare: Callable[[], Awaitable[str]] | None) -> str:
        if prepare is None:
            return ""
        if not self._may_act():
            raise UnavailableError("another process leads; no call was made")
        self._check_allowed("create")
        seconds = create_limit(self.settings, self.traits) / 2

        def failed(error: Exception) -> CloudgraftError:
            self._failures.failed(_USER_DATA, error, {"cloud": self.settings.name})
            return InternalError(f"it failed with {cause(error)}; the log has the details")

        late = f"it was not made within {seconds:g} s"
        user_data = await within(seconds, prepare, late=lambda: DeadlineError(late), failed=failed)
        self._failures.worked(_USER_DATA, {"cloud": self.settings.name})
        return user_data

    async def _delete(self, name: str, machine: Machine) -> Outcome:
        seconds = self.settings.delete_timeout.total_seconds()
        try:
            await self._call("delete", seconds, lambda: self._driver.delete(machine), machine=name)
        except CloudgraftError as error:
            return DeleteFailed(machine.machine_id, error)
        return Deleted(machine.machine_id)

    async def _call(self, verb: str, seconds: float, call: Callable[[], Awaitable[T]], *, machine: str = "") -> T:
        """Returns the call's result or raises CloudgraftError, within the timeout."""
        if not self._may_act():
            raise UnavailableError("another process leads; no call was made")
        self._check_allowed(verb)
        time, result = asyncio.get_running_loop().time, OK
        began = time()
        try:
            with self._traced(verb, machine):
                return await self._limited(verb, seconds, call)
        except CloudgraftError as error:
            result = error.slug
            raise
        except BaseException:
            result = ""  # abandoned: the call did not end
            raise
        finally:
            if result:
                self.statistics.add(verb, result, time() - began, seconds)

    def _traced(self, verb: str, machine: str) -> AbstractContextManager[None]:
        """The span of a call. Not of `start`: what a driver starts there lives on, and would belong to that span."""
        if self._traces is None or verb == "start":
            return nullcontext()
        return self._traces.calling(verb, self.settings.name, machine)

    def _check_allowed(self, verb: str) -> None:
        """The last check of observeOnly: whatever was decided before, only read-only calls are made."""
        if self.settings.observe_only and verb not in _LOOKING:
            raise PreconditionError(
                f"observeOnly of cloud {self.settings.name} is set, so it was not called to {verb}; remove "
                "observeOnly from the configuration to allow that"
            )

    async def _limited(self, verb: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        cloud = self.settings.name

        def failed(error: Exception) -> CloudgraftError:
            self._failures.failed(verb, error, {"cloud": cloud, "call": verb})
            return InternalError(
                f"the driver of cloud {cloud} failed in {verb} with {cause(error)}; the log has the details"
            )

        late = f"cloud {cloud} did not answer {verb} within {seconds:g} s"
        result = await within(seconds, call, late=lambda: DeadlineError(late), failed=failed)
        self._failures.worked(verb, {"cloud": cloud, "call": verb})
        return result


async def _checked(answer: object) -> Sequence[Machine]:
    """Validates a driver's list; an invalid one is rejected as a whole."""
    if not isinstance(answer, Sequence):
        raise InternalError(f"the driver's list() answered with {type(answer).__name__} instead of a sequence")
    seen: set[str] = set()
    async for some in in_slices(answer, _SLICE):
        for machine in some:
            check_machine(machine, "list()")
            if machine.machine_id in seen:
                raise InternalError(f"the driver's list() has machine {machine.machine_id} twice")
            seen.add(machine.machine_id)
    return answer
