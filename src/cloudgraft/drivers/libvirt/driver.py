"""Implements the driver ``libvirt``: machines are domains of one host.

A create first defines the domain with its marks, without starting it. Then it creates the disk and the seed, with names
derived from the machine's, and starts the domain. So everything belongs to the domain from the start: volumes have no
marks, and without their domain no one could tell whose they are. A delete goes the other way round, the domain last.
A crash midway, by a kill -9 of this program or of libvirt's daemon, leaves a domain that never ran. For as long as a
create may take, list() leaves it out: the engine takes a listed machine as accepted, and would not repeat the create
that finishes it. A repeated create makes the volumes again and starts the domain. A domain that no create finished is
then listed as FAILED, so that the engine deletes it. A create that fails removes what it made before it raises.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from cloudgraft.drivers.common.locks import NamedLocks
from cloudgraft.drivers.libvirt.connection import Connection
from cloudgraft.drivers.libvirt.domains import (
    KnownMarks,
    Marks,
    disk_volume,
    domain_xml,
    has_run,
    is_active,
    is_being_made,
    machine_of,
    may_be_ours,
    seed_volume,
    uuid_of,
)
from cloudgraft.drivers.libvirt.host import Host, Seen
from cloudgraft.drivers.libvirt.options import LibvirtOptions, MachineSettings
from cloudgraft.drivers.libvirt.order import Order, check_room, order_of, request_of
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")  # it is also the host name
_LONGEST_TURN: Final = timedelta(seconds=60)


class LibvirtDriver(BlockingDriver):
    """Virtual machines of one host."""

    Options = LibvirtOptions
    MachineSettings = MachineSettings

    def __init__(self, options: LibvirtOptions) -> None:
        self._options = options
        self.traits = options.traits()
        self._connection = Connection(options)
        self._host = Host(options, self._connection)
        self._known = KnownMarks()
        self._turns = NamedLocks(_LONGEST_TURN)
        self._admission = NamedLocks(_LONGEST_TURN)  # from counting until the new domain is defined, and so counted

    def start(self) -> None:
        """Does not connect yet: an unavailable host must not keep other clouds from starting."""
        self._connection.open()

    def close(self) -> None:
        """Releases the connection."""
        self._connection.close()

    def shapes(self) -> Sequence[Shape]:
        """Returns the shapes of the options: libvirt has none."""
        return self._options.offers()

    def known_shapes(self) -> Sequence[Shape]:
        """Returns the same: they are in the options."""
        return self.shapes()

    def list(self) -> Sequence[Machine]:
        """Reads all domains in one call, and one more for the marks of each new one. Ignores domains of others."""
        domains = [seen for seen in self._host.domains() if may_be_ours(seen.id)]
        self._known.keep({seen.id for seen in domains})
        machines = (self._listed(seen) for seen in domains)
        return [machine for machine in machines if machine is not None]

    def create(self, spec: MachineSpec) -> Machine:
        """Creates and starts it; returns one that has run already as it is."""
        if not _NAME.fullmatch(spec.name):
            raise InvalidArgumentError(f"{spec.name!r} cannot be the name of a machine: it is a host name too")
        request = request_of(spec, self._options)
        with self._turns.take(spec.name):
            found = self._host.find(uuid_of(spec.name))
            known = self._own_marks(found, spec) if found is not None else None
            if found is not None and has_run(found.state, found.reason):
                return self._machine(found, known)
            # New marks, also for one that is half made: its time to be created starts now.
            marks = Marks.of(spec, known.pool if known is not None else self._options.pool)
            return self._made(order_of(request, marks, self._host, self._options), is_new=found is None)

    def delete(self, machine: Machine) -> None:
        """Powers it off and removes it with its volumes, the domain last; skips what is gone."""
        if not _is_uuid(machine.machine_id) or not may_be_ours(machine.machine_id):
            return  # never made by us
        with self._turns.take(machine.name):
            found = self._host.find(machine.machine_id)
            if found is None:
                self._remove_leftovers(machine)
                return
            try:
                marks = self._host.marks(found)
            except NotFoundError:
                return
            if marks is None:
                raise PreconditionError(
                    f"the domain {found.name} has lost the marks of cloudgraft, so it is not touched; "
                    f"`virsh undefine {found.name}` removes it"
                )
            if not marks.are_of(machine):  # a list may show cached marks
                raise PreconditionError(f"the marks of the domain {found.name} have changed, so it is not touched")
            self._remove(found, marks.pool, marks.name)

    # -- making --------------------------------------------------------------------------------------------------------

    def _own_marks(self, found: Seen, spec: MachineSpec) -> Marks:
        """Reads the marks of an existing domain; raises AlreadyExistsError when it was not created for this spec."""
        marks = self._host.marks(found)
        if marks is None or marks.tags != spec.tags:
            raise AlreadyExistsError(
                f"the domain {found.name} is there already, and does not have the marks of {spec.name}"
            )
        return marks

    def _made(self, order: Order, *, is_new: bool) -> Machine:
        name = order.plan.marks.name
        is_defined = is_ours = False
        try:
            with self._admission.take("the room of the host"):
                if is_new:
                    check_room(self._host, self._options, order.plan.memory)
                domain = self._host.define(domain_xml(order.plan, self._options), name)
            is_defined = True
            is_ours = not self._host.is_running(domain, name)  # another process, thought dead, may have been faster
            if is_ours:
                self._host.make_disk(order.plan.marks.pool, disk_volume(name), order)
                self._host.make_seed(order.plan.marks.pool, seed_volume(name), order.seed)
                self._host.start(domain, name)
        except CloudgraftError as error:
            raise self._undone(error, order.plan.marks, is_defined=is_defined, is_ours=is_ours) from None
        seen = Seen(domain=domain, id=uuid_of(name), name=name, state=1, reason=0)
        return self._machine(seen, order.plan.marks)

    def _undone(self, error: CloudgraftError, marks: Marks, *, is_defined: bool, is_ours: bool) -> CloudgraftError:
        """Removes what was made before the error, and returns what to raise. Until then the outcome is unknown.

        A domain that runs and was not started by this call (``is_ours``) is left alone: a list will show it.
        """
        try:
            found = self._host.find(uuid_of(marks.name))
            if found is not None and is_active(found.state) and not is_ours:
                return DeadlineError(f"{error.message}; and another has started it meanwhile")
            if found is not None:
                self._remove(found, marks.pool, marks.name)
            elif is_defined:  # another deleted it meanwhile
                self._host.remove_volumes(marks.pool, disk_volume(marks.name), seed_volume(marks.name))
        except CloudgraftError as second:
            return DeadlineError(f"{error.message}; and what was made could not be removed: {second.message}")
        if isinstance(error, DeadlineError):
            return UnavailableError(f"{error.message}; what there was of it has been removed")
        return error

    # -- removing ------------------------------------------------------------------------------------------------------

    def _remove(self, found: Seen, pool: str, name: str) -> None:
        self._host.stop(found.domain, found.name)
        self._host.remove_volumes(pool, disk_volume(name), seed_volume(name))
        self._host.undefine(found.domain, found.name)

    def _remove_leftovers(self, machine: Machine) -> None:
        """Removes the volumes of a domain that was undefined by hand: its id proves that the name is our machine's."""
        if machine.machine_id == uuid_of(machine.name):
            self._host.remove_volumes(self._options.pool, disk_volume(machine.name), seed_volume(machine.name))

    # -- showing -------------------------------------------------------------------------------------------------------

    def _listed(self, seen: Seen) -> Machine | None:
        try:
            marks = self._known.read(seen.id, seen.name, seen.state, lambda: self._host.marks(seen))
        except NotFoundError:
            return None  # gone since the list was made
        if marks is None and seen.id != uuid_of(seen.name):
            return None  # of another program that derives ids as we do
        if is_being_made(marks, seen.state, seen.reason, self._options.create_timeout):
            return None
        return self._machine(seen, marks)

    def _machine(self, seen: Seen, marks: Marks | None) -> Machine:
        return machine_of(seen.id, seen.name, marks, seen.state, seen.reason)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
