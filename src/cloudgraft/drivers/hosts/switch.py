"""Defines the power switch of existing machines, and how the list shows an assigned one."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from cloudgraft.drivers.common.listing import age_of
from cloudgraft.drivers.hosts.assignments import Assignment, Taken
from cloudgraft.drivers.hosts.inventory import Host
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import CloudgraftError, OutOfStockError, Retry

# -- switching ---------------------------------------------------------------------------------------------------------

H_contra = TypeVar("H_contra", bound=Host, contravariant=True)


class PowerState(enum.Enum):
    """The power state that a machine's controller reports."""

    ON = "on"
    OFF = "off"


class Switch(Protocol[H_contra]):
    """Switches the machines of one driver. Raises the SDK's errors, which say truly whether something was done."""

    @property
    def can_tell(self) -> bool:
        """Whether the power state can be read."""

    @property
    def longest_on(self) -> timedelta:
        """The longest time that powering on may take."""

    def start(self) -> None:
        """Checks that everything it needs exists."""

    async def close(self) -> None:
        """Ends running operations."""

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """Returns what is needed to release the machine; it is stored before anything is done."""

    async def on(self, host: H_contra, spec: MachineSpec, *, is_first: bool) -> None:
        """Powers it on. ``is_first``: no earlier call can have done it, so a machine that is on is in use."""

    async def off(self, host: H_contra, assignment: Assignment) -> bool:
        """Powers it off; returns whether it sent an order now: the machine may be shutting down already."""

    async def state(self, host: H_contra) -> PowerState:
        """Returns its power state."""

    async def free_state(self, host: H_contra) -> PowerState:
        """Returns the power state of a free machine; raises when it must not be assigned."""

    async def clear(self, host: H_contra, assignment: Assignment) -> None:
        """Removes the media of this machine. It is off, or was never powered on."""


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


def age(moment: datetime) -> timedelta:
    """Returns the time since then, for all decisions that use :class:`Times`."""
    return age_of(moment)


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
        return _stopping(assignment, state, age(assignment.stopping_since), times)
    if state is PowerState.ON:
        return machine_of(assignment, MachineState.RUNNING)
    if not assignment.is_confirmed:
        is_young = switching or age(assignment.since) < max(times.power_on, longest_on)
        return _unconfirmed(assignment, state, why, is_young=is_young)
    if state is not PowerState.OFF:
        return machine_of(assignment, MachineState.RUNNING, state)
    if age(assignment.since) < times.power_on:
        return machine_of(assignment, MachineState.PENDING, "it was switched on, and still looks off")
    return machine_of(assignment, MachineState.STOPPED, "it is off")


def _stopping(assignment: Assignment, state: PowerState | str, told: timedelta, times: Times) -> Machine:
    # A machine listed as deleting is not deleted again, and one that was just booting may have missed the order.
    if state is PowerState.ON and told >= times.power_off:
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
