"""A fixed list of machines. To create one is to switch a free one on; to delete it is to switch it off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cloudgraft.drivers.static.assignments import Assignment, Assignments, Taken
from cloudgraft.drivers.static.inventory import Inventory
from cloudgraft.drivers.static.options import Host, MachineSettings, StaticOptions
from cloudgraft.drivers.static.power import Power, PowerState
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PreconditionError,
    Retry,
)

__all__ = ["StaticDriver"]

log = logging.getLogger("cloudgraft.drivers")


class StaticDriver(Driver):
    """Machines that you own, switched on and off by commands of yours."""

    Options = StaticOptions
    MachineSettings = MachineSettings

    def __init__(self, options: StaticOptions) -> None:
        """Reads the inventory; raises InvalidArgumentError when it makes no sense."""
        self.traits = options.traits()
        self._inventory = Inventory(options)
        self._hosts = self._inventory.current()
        self._power = Power(options)
        self._power_on_time = options.power_on_time
        self._power_off_time = options.power_off_time
        self._assignments = Assignments(options.state_file or Path("static-machines.json"))
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one call at a time switches a machine
        self._failed: dict[str, float] = {}  # when a machine last could not be switched on: others are tried first
        self._why: dict[str, str] = {}  # what its switch said then
        self._told: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Looks whether the commands are there, and whether the account can be read and kept."""
        self._power.start()
        await asyncio.to_thread(self._assignments.check)

    async def close(self) -> None:
        """Ends the commands that run."""
        await self._power.close()

    # -- create --------------------------------------------------------------------------------------------------------

    async def create(self, spec: MachineSpec) -> Machine:
        """Takes a free machine, writes that down, and switches it on."""
        assignment, is_new = await self._taken(spec)
        host = self._known(assignment)
        async with self._locks[host.id]:
            await self._expect_still(assignment)
            self._why.pop(host.id, None)
            try:
                await self._power.on(host, spec.name, spec.group, spec.user_data)
            except CloudgraftError as error:
                self._failed[host.id], self._why[host.id] = time.monotonic(), error.message
                if error.retry is Retry.SETTLE_FIRST:
                    raise
                if not is_new:  # an earlier call may have switched it on
                    raise DeadlineError(f"{error.message}; whether an earlier try did it is not known") from error
                await asyncio.to_thread(self._assignments.release, host.id, spec.name)
                raise
            await self._confirm(assignment)
        return _machine(assignment, MachineState.PENDING if self._power.can_tell else MachineState.RUNNING)

    async def _confirm(self, assignment: Assignment) -> None:
        try:
            await asyncio.to_thread(self._assignments.confirm, assignment.host, assignment.name)
        except CloudgraftError as error:
            raise DeadlineError(f"{assignment.host} was switched on, but that was not written down: {error}") from None

    async def _taken(self, spec: MachineSpec) -> tuple[Assignment, bool]:
        """The machine that this name has, or has from now on; and whether that is new."""
        refused: dict[str, str] = {}
        while True:
            taken = await self._look()
            fitting = self._fitting(spec)
            known = next((one for one in taken.values() if one.name == spec.name), None)
            if known is not None:
                return known, False
            free = [host for host in fitting if host.id not in taken and host.id not in refused]
            if not free:
                raise _out_of_stock(fitting, taken, refused)
            host = min(free, key=lambda one: self._failed.get(one.id, 0.0))  # the first of several
            # One that is free by our account, but on, is somebody's; or our account was lost.
            state = await self._state(host) if self._power.can_tell else PowerState.OFF
            if state is not PowerState.OFF:
                refused[host.id] = "is on already" if state is PowerState.ON else state
                continue
            found = await asyncio.to_thread(self._assignments.take, host, spec.name, spec.tags)
            if found is not None:
                return found

    def _fitting(self, spec: MachineSpec) -> Sequence[Host]:
        select = spec.settings.get("select") or {}
        if not isinstance(select, Mapping):
            raise InvalidArgumentError("machine.select must be a mapping of labels")
        fitting = [
            host
            for host in self._hosts.values()
            if host.group in ("", spec.group) and all(host.labels.get(key) == value for key, value in select.items())
        ]
        if not fitting:
            what = f"the group {spec.group!r} with the labels {dict(select)}" if select else f"the group {spec.group!r}"
            raise InvalidArgumentError(f"none of the {len(self._hosts)} machines is for {what}")
        return fitting

    async def _expect_still(self, assignment: Assignment) -> None:
        """It may have been given back while another call about it ran."""
        now = (await asyncio.to_thread(self._assignments.read)).get(assignment.host)
        if now is None or now.name != assignment.name or now.is_stopping:
            raise ConflictError(f"{assignment.host} is being switched off, and no longer serves {assignment.name}")

    # -- delete --------------------------------------------------------------------------------------------------------

    async def delete(self, machine: Machine) -> None:
        """Switches it off; it is free again when it is off. One that serves another name by now is not touched."""
        async with self._locks[machine.machine_id]:  # a machine that is being switched on is switched off after that
            taken = await self._look()
            assignment = taken.get(machine.machine_id)
            if assignment is None or assignment.name != machine.name:
                return
            host = self._known(assignment)
            end = self._assignments.release if await self._is_off(host, assignment) else self._assignments.stopping
            await asyncio.to_thread(end, host.id, machine.name)

    async def _is_off(self, host: Host, assignment: Assignment) -> bool:
        """Switches it off, and tells whether it is; raises when nobody knows.

        Many a switch refuses what is off: a soft shutdown, ssh. So one that fails is no failure when the machine is
        off; unless it was switched on just now, and only looks so.
        """
        try:
            await self._power.off(host, assignment.name)
        except CloudgraftError:
            is_young = _age(assignment.since) < self._power_on_time
            if is_young or not self._power.can_tell or await self._state(host) is not PowerState.OFF:
                raise
            return True
        return not self._power.can_tell or await self._state(host) is PowerState.OFF

    def _known(self, assignment: Assignment) -> Host:
        host = self._hosts.get(assignment.host)
        if host is None:
            raise PreconditionError(
                f"{assignment.host}, which serves {assignment.name}, is no longer in the inventory, and is left alone. "
                f"Put it back; or switch it off yourself and remove it from {self._assignments.file}"
            )
        return host

    # -- list ----------------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[Machine]:
        """The machines that are taken, each with what its controller says."""
        taken = await self._look()
        self._tell_lost(taken)
        seen = await asyncio.gather(*(self._seen(assignment) for assignment in taken.values()))
        return [machine for machine in seen if machine is not None]

    async def _seen(self, assignment: Assignment) -> Machine | None:
        host = self._hosts.get(assignment.host)
        if host is None:
            return _machine(assignment, MachineState.RUNNING, "it is no longer in the inventory, and is left alone")
        state = await self._state(host) if self._power.can_tell else _believed(assignment)
        if assignment.is_stopping and state is PowerState.OFF:
            await asyncio.to_thread(self._assignments.release, host.id, assignment.name)
            return None
        return self._shown(assignment, state)

    def _shown(self, assignment: Assignment, state: PowerState | str) -> Machine:
        if assignment.stopping_since is not None:
            return self._shown_stopping(assignment, state, _age(assignment.stopping_since))
        if state is PowerState.ON:
            return _machine(assignment, MachineState.RUNNING)
        if not assignment.is_confirmed:
            return self._shown_unconfirmed(assignment, state)
        if state is not PowerState.OFF:
            return _machine(assignment, MachineState.RUNNING, state)
        if _age(assignment.since) < self._power_on_time:
            return _machine(assignment, MachineState.PENDING, "it was switched on, and still looks off")
        return _machine(assignment, MachineState.STOPPED, "it is off")

    def _shown_stopping(self, assignment: Assignment, state: PowerState | str, age: timedelta) -> Machine:
        # What is shown as deleting is not deleted again; and a machine that boots just then may have missed it.
        if state is PowerState.ON and age >= self._power_off_time:
            return _machine(assignment, MachineState.RUNNING, "it was told to switch off, and is still on")
        return _machine(assignment, MachineState.DELETING, "it is being switched off")

    def _shown_unconfirmed(self, assignment: Assignment, state: PowerState | str) -> Machine:
        """After a powerOn that failed, or a crash: once it is listed nobody tries again, so it fails soon (law 7)."""
        longest = max(self._power_on_time, self._power.longest_on)
        if self._locks[assignment.host].locked() or _age(assignment.since) < longest:
            return _machine(assignment, MachineState.PENDING, "it is being switched on")
        seen = "it is not on" if state is PowerState.OFF else f"it {state}"
        why = self._why.get(assignment.host, "powerOn did not say that it went well")
        return _machine(assignment, MachineState.FAILED, f"{seen}: {why}")

    async def _look(self) -> Taken:
        """Who has which machine, and which there are, at this moment."""
        self._hosts = await asyncio.to_thread(self._inventory.current)
        return await asyncio.to_thread(self._assignments.read)

    async def _state(self, host: Host) -> PowerState | str:
        """The state, or why nobody knows: one dead controller must not hide all the other machines (law 6)."""
        try:
            return await self._power.state(host)
        except CloudgraftError as error:
            return f"cannot be asked for its state: {error.message}"

    def _tell_lost(self, taken: Taken) -> None:
        lost = frozenset(taken) - frozenset(self._hosts)
        for host in sorted(lost - self._told):
            log.warning(
                "a machine in use is no longer in the inventory", extra={"host": host, "used_by": taken[host].name}
            )
        self._told = lost


def _out_of_stock(fitting: Sequence[Host], taken: Taken, refused: Mapping[str, str]) -> OutOfStockError:
    count = sum(host.id in taken for host in fitting)
    others = "".join(f"; {host} {why}, and is not given out" for host, why in refused.items() if host not in taken)
    return OutOfStockError(f"no machine is free: {count} of {len(fitting)} are taken{others}")


def _believed(assignment: Assignment) -> PowerState:
    """Where nobody can tell: what the switch said last."""
    return PowerState.ON if assignment.is_confirmed else PowerState.OFF


def _age(moment: datetime) -> timedelta:
    return datetime.now(UTC) - moment


def _machine(assignment: Assignment, state: MachineState, reason: str = "") -> Machine:
    return Machine(
        name=assignment.name,
        machine_id=assignment.host,
        provider_id=assignment.provider_id,
        state=state,
        tags=assignment.tags,
        created_at=assignment.since,
        reason=reason,
        addresses=assignment.addresses,
    )
