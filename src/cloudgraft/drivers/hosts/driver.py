"""Implements a driver for a fixed list of machines: create powers a free one on, delete powers it off.

The driver stores which name has which machine before it switches anything (law 2); this is the proof of ownership. A
machine is free again when it is off and its media are removed.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Generic

from cloudgraft.drivers.common.listing import age_of
from cloudgraft.drivers.hosts.assignments import Assignment, Assignments, Taken
from cloudgraft.drivers.hosts.inventory import Host, HostType, Inventory
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

# -- switching ---------------------------------------------------------------------------------------------------------


class PowerState(enum.Enum):
    """The power state that a machine's controller reports."""

    ON = "on"
    OFF = "off"


class Switch(ABC, Generic[HostType]):
    """Switches the machines of one driver. Raises the SDK's errors, which say truly whether something was done."""

    can_tell: bool  # whether the power state can be read
    longest_on: timedelta  # the longest time that powering on may take

    @abstractmethod
    def start(self) -> None:
        """Checks that everything it needs exists."""

    @abstractmethod
    async def close(self) -> None:
        """Ends running operations."""

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """Returns what is needed to release the machine; it is stored before anything is done."""
        del spec
        return {}

    @abstractmethod
    async def on(self, host: HostType, spec: MachineSpec, *, is_first: bool) -> None:
        """Powers it on. ``is_first``: no earlier call can have done it, so a machine that is on is in use."""

    @abstractmethod
    async def off(self, host: HostType, assignment: Assignment) -> bool:
        """Powers it off; returns whether it sent an order now: the machine may be shutting down already."""

    @abstractmethod
    async def state(self, host: HostType) -> PowerState:
        """Returns its power state."""

    async def free_state(self, host: HostType) -> PowerState:
        """Returns the power state of a free machine; raises when it must not be assigned."""
        return await self.state(host)

    async def clear(self, host: HostType, assignment: Assignment) -> None:
        """Removes the media of this machine, if there are any. It is off, or was never powered on."""


# -- assigned machines in the list -------------------------------------------------------------------------------------
# Combines the assignment with the state that the controller reports. Pure.

_SHOWN: Final = 6  # machines that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long machines take to switch."""

    power_on: timedelta  # for which a machine that was powered on may still look off
    power_off: timedelta  # for which a machine may still be on; then the order is repeated
    # For which a machine that was powered on and never seen on may still come up, although it looks off and was ordered
    # off.
    rise: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a free machine is not assigned."""

    why: str
    error: CloudgraftError | None = None  # what its controller said


def machine_of(assignment: Assignment, state: MachineState, reason: str = "") -> Machine:
    """Builds a machine of the list."""
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


def shown(
    assignment: Assignment, state: PowerState | str, times: Times, *, switching: bool, longest_on: timedelta, why: str
) -> Machine:
    """Builds a machine of the inventory. ``state`` may be the reason why it is unknown; ``why`` is the last failure."""
    if assignment.stopping_since is not None:
        return _stopping(assignment, state, age_of(assignment.stopping_since), times)
    if state is PowerState.ON:
        return machine_of(assignment, MachineState.RUNNING)
    if not assignment.is_confirmed:
        is_young = switching or age_of(assignment.since) < max(times.power_on, longest_on)
        return _unconfirmed(assignment, state, why, is_young=is_young)
    if state is not PowerState.OFF:
        return machine_of(assignment, MachineState.RUNNING, state)
    if age_of(assignment.since) < times.power_on:
        return machine_of(assignment, MachineState.PENDING, "it was switched on, and still looks off")
    return machine_of(assignment, MachineState.STOPPED, "it is off")


def _stopping(assignment: Assignment, state: PowerState | str, waited: timedelta, times: Times) -> Machine:
    # A machine listed as deleting is not deleted again, and one that was just booting may have missed the order.
    if state is PowerState.ON and waited >= times.power_off:
        return machine_of(assignment, MachineState.RUNNING, "it was told to switch off, and is still on")
    return machine_of(assignment, MachineState.DELETING, "it is being switched off")


def _unconfirmed(assignment: Assignment, state: PowerState | str, why: str, *, is_young: bool) -> Machine:
    """Handles a failed power-on, or a crash: once it is listed no create is repeated, so it fails soon (law 7)."""
    if is_young:
        reason = f"whether it is being switched on is not known: {why}" if why else "it is being switched on"
        return machine_of(assignment, MachineState.PENDING, reason)
    seen = "it is not on" if state is PowerState.OFF else f"it {state}"
    return machine_of(assignment, MachineState.FAILED, f"{seen}: {why or 'its switch did not say that it went well'}")


def none_free(fitting: Sequence[Host], taken: Taken, refused: Mapping[str, Refusal]) -> CloudgraftError:
    """Returns the error when no machine is available. If all fail alike, the cause is not a lack of machines."""
    count = sum(host.id in taken for host in fitting)
    untaken = {host: refusal for host, refusal in refused.items() if host not in taken}
    others = "".join(f"; {host} {refusal.why}, and is not given out" for host, refusal in untaken.items())
    holders = [f"{host.id} by {taken[host.id].name}" for host in fitting if host.id in taken]
    more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
    who = f"; taken are {', '.join(holders[:_SHOWN])}{more}" if holders else ""
    text = f"no machine is free: {count} of {len(fitting)} are taken{others}{who}"
    kinds = {type(refusal.error) for refusal in untaken.values()}
    error = next((refusal.error for refusal in untaken.values()), None)
    if error is not None and len(kinds) == 1 and not count and error.retry is not Retry.SETTLE_FIRST:
        return type(error)(text, retry_after=error.retry_after)
    return OutOfStockError(text)


log = logging.getLogger("cloudgraft.drivers")


class HostsDriver(Driver, Generic[HostType]):
    """A fixed list of machines with a power switch."""

    def __init__(self, inventory: Inventory[HostType], account: Path, switch: Switch[HostType], times: Times) -> None:
        self._inventory = inventory
        self._hosts = inventory.current()
        self._switch = switch
        self._times = times
        self._assignments = Assignments(account)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one call at a time switches a machine
        self._failed: dict[str, float] = {}  # when a machine last failed: others are tried first
        self._why: dict[str, str] = {}  # what its switch said then
        self._tried: dict[str, str] = {}  # by machine: the name for which a call has begun to switch it on
        self._risen: dict[str, str] = {}  # by machine: the name for which it was seen on
        self._lost: frozenset[str] = frozenset()  # machines in use that are not in the inventory

    async def start(self) -> None:
        """Checks that the switch works, and that the assignments can be read and written."""
        self._switch.start()
        await asyncio.to_thread(self._assignments.check)

    async def close(self) -> None:
        """Ends the operations of the switch."""
        await self._switch.close()

    # -- create --------------------------------------------------------------------------------------------------------

    async def create(self, spec: MachineSpec) -> Machine:
        """Assigns a free machine, stores that, and powers it on."""
        assignment, is_new = await self._taken(spec)
        host = self._known(assignment)
        async with self._locks[host.id]:
            assignment = await self._expect_still(assignment)
            is_first = is_new and not assignment.is_confirmed and self._tried.get(host.id) != spec.name
            self._tried[host.id] = spec.name  # another call of the same name may have come first
            self._why.pop(host.id, None)
            try:
                await self._switch.on(host, spec, is_first=is_first)
            except CloudgraftError as error:
                self._failed[host.id], self._why[host.id] = time.monotonic(), error.message
                if error.retry is Retry.SETTLE_FIRST:
                    raise
                if not is_first:  # an earlier call may have switched it on
                    raise DeadlineError(f"{error.message}; whether an earlier try did it is not known") from error
                await self._give_back(host, assignment, error)
                raise
            await self._confirm(assignment)
        return machine_of(assignment, MachineState.PENDING if self._switch.can_tell else MachineState.RUNNING)

    async def _give_back(self, host: HostType, assignment: Assignment, error: CloudgraftError) -> None:
        try:
            await self._release(host, assignment)
        except CloudgraftError as failure:
            raise DeadlineError(f"{error.message}; and it could not be given back: {failure.message}") from error

    async def _confirm(self, assignment: Assignment) -> None:
        try:
            await asyncio.to_thread(self._assignments.confirm, assignment.host, assignment.name)
        except CloudgraftError as error:
            raise DeadlineError(f"{assignment.host} was switched on, but that was not written down: {error}") from None

    async def _taken(self, spec: MachineSpec) -> tuple[Assignment, bool]:
        """Returns the machine that this name has or now gets, and whether it is new."""
        refused: dict[str, Refusal] = {}
        while True:
            taken = await self._look()
            fitting = self._fitting(spec)
            known = next((one for one in taken.values() if one.name == spec.name), None)
            if known is not None:
                return known, False
            free = [host for host in fitting if host.id not in taken and host.id not in refused]
            if not free:
                raise none_free(fitting, taken, refused)
            host = min(free, key=lambda one: self._failed.get(one.id, 0.0))  # the first of several
            refusal = await self._refusal(host)
            if refusal is not None:
                refused[host.id] = refusal
                continue
            notes = self._switch.notes(spec)
            found = await asyncio.to_thread(self._assignments.take, host, spec.name, spec.tags, notes)
            if found is not None:
                return found

    async def _refusal(self, host: HostType) -> Refusal | None:
        """Refuses a machine that is not assigned, but on: it is in use, or our assignments were lost."""
        if not self._switch.can_tell:
            return None
        try:
            state = await self._switch.free_state(host)
        except CloudgraftError as error:
            self._failed[host.id] = time.monotonic()
            return Refusal(why=f"cannot be asked for its state: {error.message}", error=error)
        return Refusal(why="is on already") if state is PowerState.ON else None

    def _fitting(self, spec: MachineSpec) -> Sequence[HostType]:
        select = self._select(spec)
        fitting = [
            host
            for host in self._hosts.values()
            if host.group in ("", spec.group)
            and all(host.labels.get(key) == value for key, value in select.items())
            and self._is_fit(host, spec)
        ]
        if not fitting:
            what = f"the group {spec.group!r} with the labels {dict(select)}" if select else f"the group {spec.group!r}"
            raise InvalidArgumentError(f"none of the {len(self._hosts)} machines is for {what}")
        return fitting

    def _select(self, spec: MachineSpec) -> Mapping[str, str]:
        """Returns the labels that a machine must have."""
        select = spec.settings.get("select") or {}
        if not isinstance(select, Mapping):
            raise InvalidArgumentError("machine.select must be a mapping of labels")
        return select

    def _is_fit(self, host: HostType, spec: MachineSpec) -> bool:
        """Returns whether it meets the group's other requirements."""
        del host, spec
        return True

    async def _expect_still(self, assignment: Assignment) -> Assignment:
        """Returns the current assignment. Another call may have released the machine meanwhile."""
        now = (await asyncio.to_thread(self._assignments.read)).get(assignment.host)
        if now is None or now.name != assignment.name or now.is_stopping:
            raise ConflictError(f"{assignment.host} is being switched off, and no longer serves {assignment.name}")
        return now

    # -- delete --------------------------------------------------------------------------------------------------------

    async def delete(self, machine: Machine) -> None:
        """Powers it off; it is free again once it is off. A machine that serves another name by now is left alone."""
        async with self._locks[machine.machine_id]:  # waits for a power-on in progress
            taken = await self._look()
            assignment = taken.get(machine.machine_id)
            if assignment is None or assignment.name != machine.name:
                return
            host = self._known(assignment)
            was_told, is_off = await self._switched_off(host, assignment)
            if is_off:
                await self._release(host, assignment)
            elif was_told:
                await asyncio.to_thread(self._assignments.stopping, host.id, machine.name)

    async def _switched_off(self, host: HostType, assignment: Assignment) -> tuple[bool, bool]:
        """Returns whether it was ordered off now, and whether it is off; raises when that is unknown.

        Many switches, such as a soft shutdown or ssh, fail for a machine that is off. So a failure does not count when
        the machine is off, unless it was powered on just now and only seems off.
        """
        if self._times.rise:
            await self._state(host, assignment)
        try:
            was_told = await self._switch.off(host, assignment)
        except CloudgraftError:
            is_young = age_of(assignment.since) < self._times.power_on
            if is_young or not self._switch.can_tell or await self._state(host, assignment) is not PowerState.OFF:
                raise
            return False, True
        if not self._switch.can_tell:
            return was_told, True
        state = await self._state(host, assignment)
        return was_told, state is PowerState.OFF and not self._may_rise(assignment)

    def _may_rise(self, assignment: Assignment) -> bool:
        is_seen = self._risen.get(assignment.host) == assignment.name
        return not is_seen and age_of(assignment.since) < self._times.rise

    async def _release(self, host: HostType, assignment: Assignment) -> None:
        await self._switch.clear(host, assignment)
        await asyncio.to_thread(self._assignments.release, host.id, assignment.name)
        self._risen.pop(host.id, None)
        self._tried.pop(host.id, None)

    def _known(self, assignment: Assignment) -> HostType:
        host = self._hosts.get(assignment.host)
        if host is None:
            raise PreconditionError(
                f"{assignment.host}, which serves {assignment.name}, is no longer in the inventory, and is left alone. "
                f"Put it back; or switch it off yourself and remove it from {self._assignments.file}"
            )
        return host

    # -- list ----------------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[Machine]:
        """Returns the assigned machines, each with the state that its controller reports."""
        taken = await self._look()
        self._warn_of_lost(taken)
        seen = await asyncio.gather(*(self._seen(assignment) for assignment in taken.values()))
        return [machine for machine in seen if machine is not None]

    async def _seen(self, assignment: Assignment) -> Machine | None:
        host = self._hosts.get(assignment.host)
        if host is None:
            return machine_of(assignment, MachineState.RUNNING, "it is no longer in the inventory, and is left alone")
        if self._switch.can_tell:
            state = await self._state(host, assignment)
        else:  # the last report of the switch
            state = PowerState.ON if assignment.is_confirmed else PowerState.OFF
        if assignment.is_stopping and state is PowerState.OFF and not self._may_rise(assignment):
            return await self._ended(host, assignment)
        return shown(
            assignment,
            state,
            self._times,
            switching=self._locks[assignment.host].locked(),
            longest_on=self._switch.longest_on,
            why=self._why.get(assignment.host, ""),
        )

    async def _ended(self, host: HostType, assignment: Assignment) -> Machine | None:
        """Releases a machine that is off. One call at a time, since another may have assigned it again."""
        going = machine_of(assignment, MachineState.DELETING, "it is off, and is being given back")
        lock = self._locks[host.id]
        if lock.locked():
            return going
        async with lock:
            now = (await asyncio.to_thread(self._assignments.read)).get(host.id)
            if now is None or now.name != assignment.name:
                return None
            try:
                await self._release(host, assignment)
            except CloudgraftError as error:
                return machine_of(assignment, MachineState.DELETING, f"it is off, but not given back: {error.message}")
        return None

    async def _look(self) -> Taken:
        """Reads the current assignments and the inventory."""
        self._hosts = await asyncio.to_thread(self._inventory.current)
        return await asyncio.to_thread(self._assignments.read)

    async def _state(self, host: HostType, assignment: Assignment) -> PowerState | str:
        """Returns the state, or why it is unknown: one dead controller must not hide the other machines (law 6)."""
        try:
            state = await self._switch.state(host)
        except CloudgraftError as error:
            return f"cannot be asked for its state: {error.message}"
        if state is PowerState.ON:
            self._risen[host.id] = assignment.name
        return state

    def _warn_of_lost(self, taken: Taken) -> None:
        lost = frozenset(taken) - frozenset(self._hosts)
        for host in sorted(lost - self._lost):
            log.warning(
                "a machine in use is no longer in the inventory", extra={"host": host, "used_by": taken[host].name}
            )
        self._lost = lost
