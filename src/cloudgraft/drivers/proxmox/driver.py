"""Implements the driver ``proxmox``: virtual machines of a Proxmox VE cluster, cloned from templates.

A machine's VMID is derived from its name. VMIDs are unique in a cluster, and Proxmox refuses a clone to a used one:
this makes a second create of a name safe, since names themselves need not be unique there.
:mod:`cloudgraft.drivers.proxmox.lifecycle` describes how an interrupted create continues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from cloudgraft.drivers.common.locks import NamedLocks
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import Marks, vmid_of
from cloudgraft.drivers.proxmox.lifecycle import Making, Order, Removal
from cloudgraft.drivers.proxmox.machines import Machines
from cloudgraft.drivers.proxmox.options import MachineSettings, ProxmoxOptions
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, NotFoundError
from cloudgraft.validation import read_settings

_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")
_LAST_STEPS: Final = timedelta(seconds=3)  # in which most creates and deletes end


class ProxmoxDriver(BlockingDriver):
    """A Proxmox VE cluster, or one host."""

    Options = ProxmoxOptions
    MachineSettings = MachineSettings

    def __init__(self, options: ProxmoxOptions) -> None:
        """Makes no call and reads no file yet."""
        self.traits = options.traits()
        self._options = options
        self._api = Api(options)
        self._machines = Machines(self._api, options)
        self._removal = Removal(self._api, options)
        self._making = Making(self._api, options, self._removal)
        self._turns = NamedLocks(options.delete_timeout)

    def start(self) -> None:
        """Checks that there is a secret."""
        self._api.start()

    def close(self) -> None:
        """Waits a moment for calls in progress, then closes the connections. Longer calls continue until they end."""
        self._turns.settle(_LAST_STEPS)
        self._api.close()

    def create(self, spec: MachineSpec) -> Machine:
        """Creates a machine and starts it, or finishes one of this name that was begun."""
        try:
            with self._turns.take(spec.name):
                order = self._order(spec)  # it holds the time of the create
                self._machines.begin(order.vmid)
                marks = self._making.make(order)
        except CloudgraftError as error:
            raise error_without(error, spec.user_data) from None
        return self._machines.machine(order.vmid, spec.name, marks, (MachineState.PENDING, "it starts"))

    def delete(self, machine: Machine) -> None:
        """Removes a machine, its disks, and the CD with its user data."""
        if not machine.machine_id.isdecimal() or not machine.name:
            return  # no machine has such an id; and without a name the owner is unknown
        with self._turns.take(machine.name):
            self._removal.remove(int(machine.machine_id), machine.name, f"delete of {machine.name}")
        self._making.release(int(machine.machine_id))

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets or removes our marks on a machine. Without marks it is listed only in our pool."""
        if not machine.machine_id.isdecimal():
            raise NotFoundError(f"mark of {machine.name}: no machine has the id {machine.machine_id!r}")
        with self._turns.take(machine.name):
            self._machines.mark(int(machine.machine_id), machine.name, tags, f"mark of {machine.name}")

    def list(self) -> Sequence[Machine]:
        """Returns every machine with our marks, of any cluster, and all in our pool; none that is half made."""
        return self._machines.all()

    def shapes(self) -> Sequence[Shape]:
        """Returns the shapes of the options."""
        return self._options.offers()

    def known_shapes(self) -> Sequence[Shape]:
        """Returns the same: they are in the options."""
        return self.shapes()

    def _order(self, spec: MachineSpec) -> Order:
        if not _NAME.fullmatch(spec.name):
            raise InvalidArgumentError(
                f"{spec.name!r} cannot be a machine's name: 1 to 63 letters, digits and dashes are taken"
            )
        settings = read_settings(MachineSettings, spec.settings)
        shape = self._options.shapes.get(settings.shape)
        if shape is None:
            known = ", ".join(self._options.shapes)
            raise InvalidArgumentError(f"machine.shape: there is no {settings.shape!r} in the cloud's shapes: {known}")
        vmid = vmid_of(spec.name, self._options.first_vmid, self._options.last_vmid)
        return Order(
            vmid=vmid,
            name=spec.name,
            marks=Marks.new(spec.tags, vmid),
            shape=shape,
            settings=settings,
            user_data=spec.user_data,
        )
