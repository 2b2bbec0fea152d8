"""Tracks clones in progress through vCenter's tasks: no list of virtual machines shows them yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from cloudgraft.drivers.vsphere.errors import error_of_fault
from cloudgraft.drivers.vsphere.machines import in_progress
from cloudgraft.drivers.vsphere.pyvmomi import Data, Reference, vim, vmodl
from cloudgraft.drivers.vsphere.session import Session, authenticated, properties_of
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError

# -- tasks -------------------------------------------------------------------------------------------------------------

STATE: Final = "info.state"
_FIRST_LOOK: Final = 0.05  # seconds
_SLOWEST_LOOK: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The state of a task."""

    is_over: bool
    fault: Data = None  # why it failed
    result: Data = None


def is_over(shown: Mapping[str, Data]) -> bool:
    """Returns whether a task has ended, with success or failure."""
    return str(shown.get(STATE)) in ("success", "error")


def outcome(session: Session, task: Reference, what: str) -> TaskState:
    """Reads the state of a task.

    Some minutes after its end vCenter forgets a task, so a task that it does not know is over. The result is read only
    after the end: before, it may be a large object, or nothing.
    """
    try:
        shown = properties_of(session, what, task, [STATE])
        if not is_over(shown):
            return TaskState(is_over=False)
        if str(shown[STATE]) == "success":
            result = properties_of(session, what, task, ["info.result"]).get("info.result")
            return TaskState(is_over=True, result=result)
        return TaskState(is_over=True, fault=_fault(session, task, what))
    except NotFoundError:
        return TaskState(is_over=True)


def _fault(session: Session, task: Reference, what: str) -> Data:
    """Reads why a task failed. A reason that cannot be read must not hide the failure."""
    why = "no reason is told"
    try:
        fault = properties_of(session, what, task, ["info.error"]).get("info.error")
    except UnavailableError as error:
        fault, why = None, error.message
    return fault if fault is not None else vim.fault.VimFault(msg=why)


def wait(session: Session, task: Reference, what: str, seconds: float) -> TaskState:
    """Returns the state of a task when it is over, or after so many seconds."""
    deadline = time.monotonic() + seconds
    backoff = Backoff(first=_FIRST_LOOK, longest=_SLOWEST_LOOK)
    while True:
        state = outcome(session, task, what)
        left = deadline - time.monotonic()
        if state.is_over or left <= 0:
            return state
        time.sleep(min(backoff.next(), left))


# -- clones ------------------------------------------------------------------------------------------------------------
# A clone may take minutes, and vCenter shows the new virtual machine late, without its marks at first. The driver
# remembers the clones that it started itself, with their marks. It finds clones of another process, such as this one
# before it was killed, among vCenter's tasks, and their names in its events. It lists those without marks, which is
# enough to keep the engine from creating them again: the marks come with the virtual machine.

_COLLECTOR: Final = vmodl.query.PropertyCollector
_KIND: Final = "VirtualMachine.clone"  # how the kind of such a task begins
_EARLIER: Final = timedelta(minutes=1)  # an event may be a little older than its task
_TASK: Final = (STATE, "info.key", "info.descriptionId", "info.queueTime", "info.eventChainId")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A clone that this process started."""

    name: str
    tags: Mapping[str, str]
    task: Reference
    began: datetime
    failure: CloudgraftError | None = None

    def machine(self) -> Machine:
        """Returns the machine as long as no virtual machine is there."""
        machine = in_progress(self.name, "it is being cloned", self.tags)
        if self.failure is None:
            return machine
        return replace(machine, state=MachineState.FAILED, reason=self.failure.message, failure=self.failure.slug)


class Clones:
    """Clones that this process started, until their virtual machines are seen. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clones: dict[str, Clone] = {}

    def begin(self, name: str, tags: Mapping[str, str], task: Reference) -> Clone:
        """Adds a clone that vCenter has accepted."""
        clone = Clone(name=name, tags=dict(tags), task=task, began=datetime.now(UTC))
        with self._lock:
            self._clones[_key(task)] = clone
        return clone

    def end(self, clone: Clone) -> None:
        """Removes a clone: it is a virtual machine now, or nothing."""
        with self._lock:
            self._clones.pop(_key(clone.task), None)

    def fail(self, clone: Clone, error: CloudgraftError) -> None:
        """Records a failure after the create was answered: lists show it until the machine is deleted."""
        with self._lock:
            if _key(clone.task) in self._clones:
                self._clones[_key(clone.task)] = replace(clone, failure=error)

    def of(self, name: str) -> Sequence[Clone]:
        """Returns the clones of this name."""
        return [clone for clone in self.all() if clone.name == name]

    def all(self) -> Sequence[Clone]:
        """Returns all clones."""
        with self._lock:
            return list(self._clones.values())

    def take_in(self, session: Session, tasks: Mapping[str, Mapping[str, Data]], clones: Sequence[Clone]) -> set[str]:
        """Updates the clones by their tasks; returns the names of those that are over."""
        over = set()
        for clone in clones:
            if not is_over(tasks.get(_key(clone.task), {STATE: "success"})):
                continue
            over.add(clone.name)
            if clone.failure is None:
                state = outcome(session, clone.task, f"clone of {clone.name}")
                if not state.is_over:  # it is only missing among the tasks that vCenter calls recent
                    over.discard(clone.name)
                elif state.fault is None:
                    self.end(clone)
                else:
                    self.fail(clone, error_of_fault(state.fault, f"clone of {clone.name}", is_change=False))
        return over


def _key(task: Reference) -> str:
    return str(task._moId)  # noqa: SLF001 - pyVmomi has no other way to tell an object's id


def clone_tasks(session: Session) -> Mapping[str, Mapping[str, Data]]:
    """Reads the clone tasks that vCenter remembers, by id: those that run, and those that ended some minutes ago."""
    step = _COLLECTOR.TraversalSpec(type=vim.TaskManager, path="recentTask", skip=False)
    wanted = _COLLECTOR.PropertySpec(type=vim.Task, pathSet=list(_TASK), all=False)

    def ask(content: Data) -> Data:
        start = _COLLECTOR.ObjectSpec(obj=content.taskManager, skip=True, selectSet=[step])
        spec = _COLLECTOR.FilterSpec(objectSet=[start], propSet=[wanted])
        return authenticated(content.propertyCollector.RetrieveContents([spec]))

    found = session.read("list of tasks", ask)
    shown = [{prop.name: prop.val for prop in one.propSet or ()} for one in found or ()]
    clones = [one for one in shown if str(one.get("info.descriptionId", "")).startswith(_KIND)]
    return {str(one["info.key"]): one for one in clones}


def names_under_way(
    session: Session, folder: Reference, tasks: Mapping[str, Mapping[str, Data]], own: Sequence[Clone]
) -> Sequence[str]:
    """Reads the names of running clones into the folder that another process started."""
    known = {_key(clone.task) for clone in own}
    strange = [one for key, one in tasks.items() if key not in known and not is_over(one)]
    if not strange:
        return ()
    begin = min(one["info.queueTime"] for one in strange) - _EARLIER
    spec = vim.event.EventFilterSpec(
        eventTypeId=["VmBeingClonedEvent"], time=vim.event.EventFilterSpec.ByTime(beginTime=begin)
    )
    events = session.read("list of clones", lambda content: content.eventManager.QueryEvents(spec)) or ()
    into = [one for one in events if one.destFolder.folder == folder]
    own_names = {clone.name for clone in own}
    return sorted(set(_names_of(strange, into)) - own_names)


def _names_of(tasks: Sequence[Mapping[str, Data]], events: Sequence[Data]) -> Iterator[str]:
    """Matches clone tasks with events: an event has the chain of its task, or else the closest time."""
    left = list(events)
    for task in tasks:
        if not left:
            return
        chain, queued = task.get("info.eventChainId"), task["info.queueTime"]
        event = min(left, key=partial(_distance, chain, queued))
        left.remove(event)
        yield str(event.destName)


def _distance(chain: int | None, queued: datetime, event: Data) -> tuple[bool, timedelta]:
    return event.chainId != chain, abs(event.createdTime - queued)
