"""Implements the driver ``vsphere``: virtual machines of VMware vSphere.

One call creates a machine: the clone specification holds its name, marks, cloud-init data and size, and powers it on.
So a crash between two steps cannot leave anything behind. The name is unique in the folder, and vCenter itself refuses
a second clone of it. The call returns at once and the clone continues in a task; :meth:`VsphereDriver.create` watches
it for a while, to report at once when there is no room. :meth:`VsphereDriver.list` shows a clone in progress as a
machine that is being created, also one of another process (see :mod:`.clones`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.vsphere.clones import Clone, Clones, TaskState, clone_tasks, names_under_way, wait
from cloudgraft.drivers.vsphere.errors import error_of_fault
from cloudgraft.drivers.vsphere.inventory import Inventory
from cloudgraft.drivers.vsphere.machines import (
    PROPERTIES,
    USER_DATA_LIMIT,
    check_name,
    clone_spec,
    in_progress,
    instance_uuid,
    is_same,
    machine_of,
    seed,
)
from cloudgraft.drivers.vsphere.options import MachineSettings, VsphereOptions, shapes_of, size_of
from cloudgraft.drivers.vsphere.pyvmomi import Reference, vim
from cloudgraft.drivers.vsphere.session import Session, children, properties_of
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import (
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    MachineState,
    Ownership,
    Shape,
)
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    NotFoundError,
)
from cloudgraft.validation import read_settings

log: Final = logging.getLogger("cloudgraft.drivers")
_DELETE_TIME: Final = 90.0  # seconds for a delete with all its tasks: below the engine's two minutes
_REST_OF_CREATE: Final = timedelta(minutes=2)  # beside clone_wait: to look up names, and to remove what failed
_CANCEL_TIME: Final = 20.0  # seconds for a clone to end after it was cancelled


class VsphereDriver(BlockingDriver):
    """Clones of a template, in one folder of a vCenter."""

    Options = VsphereOptions
    MachineSettings = MachineSettings
    traits = DriverTraits(
        ownership=Ownership.TAGS,
        idempotency=Idempotency.UNIQUE_NAME,
        user_data_limit=USER_DATA_LIMIT,
    )

    def __init__(self, options: VsphereOptions) -> None:
        self._options = options
        self.traits = replace(
            type(self).traits,
            provider_id_by=options.providerIDBy,
            create_timeout=options.clone_wait + _REST_OF_CREATE,
        )
        self._session = Session(options)
        self._inventory = Inventory(self._session, options)
        self._clones = Clones()
        self._lock = threading.Lock()
        self._deleting: set[str] = set()  # ids of machines that a call deletes at the moment

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def shapes(self) -> Sequence[Shape]:
        """Returns the shapes of the options: vSphere has none."""
        return shapes_of(self._options)

    def known_shapes(self) -> Sequence[Shape]:
        """Returns the same: they are in the options."""
        return self.shapes()

    # -- create --------------------------------------------------------------------------------------------------------

    def create(self, spec: MachineSpec) -> Machine:
        """Starts a clone of the template. A name that is taken is AlreadyExistsError, whoever has it."""
        check_name(spec.name)
        settings = read_settings(MachineSettings, spec.settings)
        size = size_of(self._options, settings.shape)
        seed(spec)  # refuses too much user data before any call
        try:
            folder = self._inventory.folder()
            template = self._inventory.template(settings)
            wanted = clone_spec(
                spec,
                settings,
                size,
                template=template,
                pool=self._inventory.pool(settings),
                datastore=self._inventory.datastore(settings),
                networks=self._inventory.networks(settings),
            )
            self._expect_new(spec.name)
            task = self._session.change(
                f"clone of {spec.name}", lambda _: template.reference.CloneVM_Task(folder, spec.name, wanted)
            )
            return self._followed(self._clones.begin(spec.name, spec.tags, task))
        except CloudgraftError as error:
            self._inventory.forget()  # a cached object may be the cause
            raise error_without(error, spec.user_data) from error

    def _expect_new(self, name: str) -> None:
        """Refuses a name that is taken. vCenter does so too, but not when the machine was renamed by hand."""
        if self._clones.of(name) or self._find(instance_uuid(name)) is not None:
            raise AlreadyExistsError(f"there is a machine {name} already")

    def _followed(self, clone: Clone) -> Machine:
        """Watches the clone for a while: most failures happen at the beginning."""
        what, seconds = f"clone of {clone.name}", self._options.clone_wait.total_seconds()
        try:
            state = wait(self._session, clone.task, what, seconds)
            if state.is_over and state.fault is None:
                return self._cloned(clone, state.result)
        except CloudgraftError as error:
            log.warning(
                "a clone has started, but its task cannot be read", extra={"machine": clone.name, "error": str(error)}
            )
            return clone.machine()
        if state.is_over:
            raise self._refused(clone, state)
        return clone.machine()

    def _cloned(self, clone: Clone, result: Reference) -> Machine:
        reference = result if result is not None else self._find(instance_uuid(clone.name))
        if reference is None:
            return clone.machine()
        shown = properties_of(self._session, "virtual machine", reference, PROPERTIES)
        machine = machine_of(shown, datetime.now(UTC))
        self._clones.end(clone)
        return machine if machine is not None else clone.machine()

    def _refused(self, clone: Clone, state: TaskState) -> CloudgraftError:
        """Returns why a clone failed. Removes the virtual machine of one that could not be powered on."""
        error = error_of_fault(state.fault, f"clone of {clone.name}", is_change=False)
        if not isinstance(error, AlreadyExistsError):
            try:
                self._remove(instance_uuid(clone.name), clone.name, time.monotonic() + _DELETE_TIME)
            except CloudgraftError as second:
                self._clones.fail(clone, error)
                return DeadlineError(f"{error.message}; and what is there of it could not be removed: {second.message}")
        self._clones.end(clone)
        return error

    # -- delete --------------------------------------------------------------------------------------------------------

    def delete(self, machine: Machine) -> None:
        """Powers it off and deletes it with its disks. Cancels a clone that still runs."""
        deadline = time.monotonic() + _DELETE_TIME
        with self._lock:
            self._deleting.add(machine.machine_id)
        try:
            clones = self._clones.of(machine.name) if machine.machine_id == instance_uuid(machine.name) else ()
            for clone in clones:
                self._cancel(clone)
            self._remove(machine.machine_id, machine.name, deadline)
            for clone in clones:
                self._clones.end(clone)
            if not clones and machine.state is MachineState.PENDING:
                self._expect_no_clone(machine)
        finally:
            with self._lock:
                self._deleting.discard(machine.machine_id)

    def _cancel(self, clone: Clone) -> None:
        what = f"cancellation of the clone of {clone.name}"
        if wait(self._session, clone.task, what, 0).is_over:
            return
        try:
            self._session.change(what, lambda _: clone.task.CancelTask())
        except CloudgraftError as error:  # it cannot be cancelled, or is over by now: what it makes is deleted then
            log.info("a clone was not cancelled", extra={"machine": clone.name, "error": str(error)})
        if not wait(self._session, clone.task, what, _CANCEL_TIME).is_over:
            raise ConflictError(f"{clone.name} is still being cloned; it can be deleted when that is over")

    def _expect_no_clone(self, machine: Machine) -> None:
        """Refuses to forget a running clone of another process, which we cannot cancel."""
        tasks = clone_tasks(self._session)
        if machine.name in names_under_way(self._session, self._inventory.folder(), tasks, self._clones.all()):
            raise ConflictError(f"{machine.name} is still being cloned; it can be deleted when that is over")

    def _remove(self, machine_id: str, name: str, deadline: float) -> None:
        """Deletes the virtual machine with this id, if it exists and still has this name."""
        reference = self._find(machine_id)
        if reference is None:
            return
        try:
            shown = properties_of(self._session, "virtual machine", reference, PROPERTIES)
            if not is_same(shown, machine_id, name):
                return
            if shown.get("runtime.powerState") != "poweredOff":
                self._switch_off(reference, name, deadline)
            task = self._session.change(f"deletion of {name}", lambda _: reference.Destroy_Task())
            self._finish(task, f"deletion of {name}", deadline)
        except NotFoundError:
            return  # another was faster

    def _switch_off(self, reference: Reference, name: str, deadline: float) -> None:
        what = f"switching {name} off"
        try:
            task = self._session.change(what, lambda _: reference.PowerOffVM_Task())
            self._finish(task, what, deadline, but=vim.fault.InvalidPowerState)
        except CloudgraftError as error:
            if not isinstance(error.__cause__, vim.fault.InvalidPowerState):
                raise

    def _finish(self, task: Reference, what: str, deadline: float, but: type | tuple[type, ...] = ()) -> None:
        state = wait(self._session, task, what, max(0.0, deadline - time.monotonic()))
        if not state.is_over:
            raise DeadlineError(f"{what}: vCenter has not finished it yet")
        if state.fault is not None and not isinstance(state.fault, but):
            raise error_of_fault(state.fault, what, is_change=True)

    def _find(self, machine_id: str) -> Reference:
        return self._session.read(
            "virtual machine",
            lambda content: content.searchIndex.FindByUuid(None, machine_id, True, True),
        )

    # -- list ----------------------------------------------------------------------------------------------------------

    def list(self) -> Sequence[Machine]:
        """Returns the machines in the folder, and those that are being cloned into it."""
        folder = self._inventory.folder()
        own = self._clones.all()  # before the tasks, and these before the machines: what ends meanwhile is not missed
        tasks = clone_tasks(self._session)
        over = self._clones.take_in(self._session, tasks, own)
        strange = names_under_way(self._session, folder, tasks, own)
        shown = children(self._session, folder, vim.VirtualMachine, PROPERTIES, self._options.page_size)
        now = datetime.now(UTC)
        seen = [machine for one in shown if (machine := machine_of(one.properties, now)) is not None]
        running = {clone.name: clone for clone in own if clone.name not in over}
        machines = [self._in_work(machine, running.get(machine.name)) for machine in seen]
        names = {machine.name for machine in seen}
        begun = [clone for clone in _latest(self._clones.all()) if clone.name not in names]
        names |= {clone.name for clone in begun}  # one that began meanwhile is among the tasks already
        machines += [clone.machine() for clone in begun]
        reason = "it is being cloned; another process began that"
        return machines + [in_progress(name, reason) for name in strange if name not in names]

    def _in_work(self, machine: Machine, clone: Clone | None) -> Machine:
        with self._lock:
            is_deleting = machine.machine_id in self._deleting
        if is_deleting:
            return replace(machine, state=MachineState.DELETING, reason="it is being deleted")
        if clone is not None and machine.state is not MachineState.RUNNING:
            return replace(machine, state=MachineState.PENDING, tags=clone.tags, reason="it is being cloned")
        return machine


def _latest(clones: Sequence[Clone]) -> Sequence[Clone]:
    """Returns the latest clone of each name."""
    return list({clone.name: clone for clone in sorted(clones, key=lambda one: one.began)}.values())
