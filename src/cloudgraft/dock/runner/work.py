"""Runs a driver's operations concurrently, one for each machine, each with exactly one result."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.protocol.messages import Answer, MachineClass, Operation, Result, Status
from cloudgraft.dock.runner.adapter import CLASS_OF_THIS_CALL, MachineError, status_of
from cloudgraft.dock.runner.classes import Classes
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.errors import ConflictError, DeadlineError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.secrecy import hide, secret_values, unhide
from cloudgraft.wire.driver import expect_all

log = logging.getLogger("cloudgraft.dock")

_REMEMBERED: Final = 1000  # machines that were created after their caller had left
_AGAIN: Final = 1.0  # seconds; a retry-after tells the hub that nothing was done
_LAST: Final = 2.0  # seconds for cancelled operations to end


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """One operation, identified by its number within one hub process, or within one connection (v0)."""

    id: int
    hub_id: str
    operation: Operation
    on_done: Callable[[Job, Result], None]
    is_acknowledged: bool = True  # False: no acknowledgement of its result will come (v0)
    is_change: bool = field(init=False)  # it creates or deletes a machine
    task: asyncio.Task[Result] | None = field(default=None, init=False)
    has_begun: bool = field(default=False, init=False)  # the driver has it, and a change runs to its end
    is_abandoned: bool = field(default=False, init=False)  # its caller has left

    def __post_init__(self) -> None:
        """Cached, because it is read often."""
        self.is_change = self.operation.verb is Verb.CREATE or self.operation.verb is Verb.DELETE

    @property
    def machine(self) -> str:
        """The machine that no other change may run for at the same time; empty for reads."""
        if self.operation.spec is not None:
            return self.operation.spec.name
        machine = self.operation.machine
        return "" if machine is None else machine.name or machine.machine_id


class OperationRunner:
    """Runs operations.

    A create or delete that the driver has begun runs to its end, even if its caller leaves: no caller would own a
    half-made machine. A deadline or a cancel ends only reads, and operations that have not begun. A hung change keeps
    its slot, so reads have slots of their own: a list is always possible.
    """

    def __init__(self, driver: Driver, classes: Classes, *, places: int) -> None:
        self._driver = driver
        self._classes = classes
        self._places = places
        self._running: dict[tuple[str, int], Job] = {}
        self._taken = {True: 0, False: 0}  # slots in use, for changes and for reads
        self._machines: dict[str, Job] = {}
        self._made_late: OrderedDict[str, Machine] = OrderedDict()
        self._refusal = ""

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, job: Job) -> None:
        """Starts the operation; ``on_done`` is called exactly once. Ignores one that is already running."""
        if (job.hub_id, job.id) in self._running:
            return
        refusal = self._refused(job)
        if refusal is not None:
            job.on_done(job, refusal)
            return
        self._running[job.hub_id, job.id] = job
        self._taken[job.is_change] += 1
        if job.is_change:
            self._machines[job.machine] = job
        began = asyncio.get_running_loop().time()
        job.task = asyncio.create_task(self._perform(job), name=f"{job.operation.verb.value} {job.machine}")
        job.task.add_done_callback(functools.partial(self._ended, job, began))

    def cancel(self, hub_id: str, number: int) -> None:
        """Cancels the operation if it is a read or has not begun."""
        job = self._running.get((hub_id, number))
        if job is None or job.task is None:
            return
        job.is_abandoned = True
        if not (job.is_change and job.has_begun):
            job.task.cancel()

    def abandon(self) -> None:
        """Marks all callers as gone: their connection has ended."""
        for job in self._running.values():
            job.is_abandoned = True

    def refuse(self, reason: str) -> None:
        """Rejects new operations from now on."""
        self._refusal = reason

    async def idle(self, seconds: float) -> bool:
        """Waits at most this long for running operations; False when some still run."""
        tasks = [job.task for job in self._running.values() if job.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return not self._running

    async def close(self) -> None:
        """Gives up running operations without reporting them."""
        tasks = [job.task for job in self._running.values() if job.task is not None]
        for job in self._running.values():
            job.on_done = _drop_result
        for task in tasks:
            task.cancel()
        if tasks:  # an author's code may ignore cancellation
            await asyncio.wait(tasks, timeout=_LAST)

    def _refused(self, job: Job) -> Result | None:
        operation = job.operation
        if self._refusal:
            return _failed(UnavailableError(f"{self._refusal}; nothing was done", retry_after=_AGAIN))
        if job.is_change and not job.machine:
            return _failed(InvalidArgumentError(f"a {operation.verb.value} needs a machine"))
        if job.is_change and job.machine in self._machines:
            other = self._machines[job.machine]
            other.is_abandoned = True  # otherwise no caller would retry
            text = f"a {other.operation.verb.value} of {job.machine!r} is still under way"
            return _failed(ConflictError(text, retry_after=_AGAIN))
        if self._taken[job.is_change] >= self._places:
            text = f"all {self._places} places of this driver are taken; nothing was done"
            return _failed(UnavailableError(text, retry_after=_AGAIN))
        return None

    def _ended(self, job: Job, began: float, task: asyncio.Task[Result]) -> None:
        """Handles every end, including a cancellation before the first step."""
        del self._running[job.hub_id, job.id]
        self._taken[job.is_change] -= 1
        if job.is_change:
            del self._machines[job.machine]
        if task.cancelled():
            result = _failed(MachineError(Code.CANCELLED, "cancelled before anything was done"))
        else:
            error = task.exception()
            result = task.result() if error is None else _failed(error)
        took = asyncio.get_running_loop().time() - began
        is_late = job.is_abandoned or took > job.operation.timeout.total_seconds()
        self._remember(job, result, is_unheard=is_late or not job.is_acknowledged)
        job.on_done(job, result)

    async def _perform(self, job: Job) -> Result:
        limit = asyncio.get_running_loop().time() + job.operation.timeout.total_seconds()
        try:
            is_at_hand, machine_class = self._classes.at_hand(job.operation)
            if not is_at_hand:
                async with asyncio.timeout_at(limit):
                    machine_class = await self._classes.ready(job.operation)
        except TimeoutError:
            text = "the machine class did not come in time; nothing was done"
            return _failed(UnavailableError(text, retry_after=_AGAIN))
        except Exception as error:  # noqa: BLE001 - any exception belongs to this operation
            return _failed(error)
        CLASS_OF_THIS_CALL.set(machine_class)
        job.has_begun = True
        with _hidden(job.operation.spec):
            try:
                if job.is_change:
                    return Result(status=Status(), answer=await self._ask(job, machine_class))
                async with asyncio.timeout_at(limit):
                    return Result(status=Status(), answer=await self._ask(job, machine_class))
            except TimeoutError:
                return _failed(DeadlineError("the driver did not answer in time"))
            except Exception as error:  # noqa: BLE001 - the same
                return _failed(error)

    async def _ask(self, job: Job, machine_class: MachineClass | None) -> Answer:
        operation, driver = job.operation, self._driver
        match operation:
            case Operation(verb=Verb.CREATE, spec=MachineSpec() as spec):
                return await self._create(_with_class(spec, machine_class))
            case Operation(verb=Verb.DELETE, machine=Machine() as machine):
                return await contained(driver.delete(machine))
            case Operation(verb=Verb.LIST):
                return _machines(await contained(driver.list()))
            case Operation(verb=Verb.SHAPES):
                return await contained(driver.shapes())
            case Operation(verb=Verb.PRICES):
                return await contained(driver.prices())
        raise InvalidArgumentError(f"a {operation.verb.value} without what it is about")

    async def _create(self, spec: MachineSpec) -> Machine:
        made = self._made_late.get(spec.name)
        if made is not None:  # its first caller may have missed the result and resent the create: one machine for both
            return made
        machine: object = await contained(self._driver.create(spec))
        if not isinstance(machine, Machine):
            raise InternalError(f"the driver answered create with {type(machine).__name__}, not with a Machine")
        if machine.name != spec.name:
            raise InternalError(f"the driver was asked for {spec.name!r} and answered with {machine.name!r}")
        if not machine.machine_id:
            raise InternalError(f"the driver made {spec.name!r} and gave no machine_id; a list will show it")
        return machine

    def made_late(self, machine: Machine) -> None:
        """Remembers a machine whose caller may have missed the result, for a repeated create."""
        self._made_late[machine.name] = machine
        if len(self._made_late) > _REMEMBERED:
            self._made_late.popitem(last=False)

    def _remember(self, job: Job, result: Result, *, is_unheard: bool) -> None:
        gone = job.operation.machine
        if gone is not None and result.status.code in {Code.OK, Code.NOT_FOUND}:
            # By any of its names: v0 knows only one, and not the one it was created with.
            for name in [name for name, machine in self._made_late.items() if _is_same(machine, gone)]:
                del self._made_late[name]
        elif is_unheard and job.operation.verb is Verb.CREATE and isinstance(result.answer, Machine):
            self.made_late(result.answer)


@contextmanager
def _hidden(spec: MachineSpec | None) -> Iterator[None]:
    """Redacts the group's values under keys such as ``password`` while its machine is created."""
    values = tuple(secret_values(spec.settings)) if spec is not None else ()
    if not values:
        yield
        return
    hide(*values)
    try:
        yield
    finally:
        unhide(*values)


def _with_class(spec: MachineSpec, machine_class: MachineClass | None) -> MachineSpec:
    """Merges class and group: the class describes the machine, and the group's values override it."""
    if machine_class is None or not machine_class.provider_spec:
        return spec
    return replace(spec, settings={**machine_class.provider_spec, **spec.settings})


def _machines(answer: object) -> list[Machine]:
    """Validates a driver's list. Any other value is an error: it must never look like an empty list."""
    expect_all(answer)
    if not isinstance(answer, Iterable):
        raise InternalError(f"the driver answered list with {type(answer).__name__}, not with machines")
    machines = [*answer]
    strange = next((each for each in machines if not isinstance(each, Machine)), None)
    if strange is not None:
        raise InternalError(f"the driver's list holds {type(strange).__name__}, not only machines")
    return machines


def _is_same(machine: Machine, gone: Machine) -> bool:
    return machine.name == gone.name or gone.machine_id in {machine.machine_id, machine.provider_id}


def _failed(error: BaseException) -> Result:
    return Result(status=status_of(error))


def _drop_result(job: Job, _result: Result) -> None:
    log.warning("%s was given up: the driver stops", job.operation.verb.value, extra={"machine": job.machine})
