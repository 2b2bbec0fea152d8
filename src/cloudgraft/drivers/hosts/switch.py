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

__all__ = ["PowerState", "Refusal", "Switch", "Times", "age", "machine_of", "none_free", "shown"]


# -- switching ---------------------------------------------------------------------------------------------------------

H_contra = TypeVar("H_contra", bound=Host, contravariant=True)


class PowerState(enum.Enum):
    """What a machine's controller says of it."""

    ON = "on"
    OFF = "off"


class Switch(Protocol[H_contra]):
    """What a driver of such machines is made of. Errors are those of the SDK, and true about what was done."""

    @property
    def can_tell(self) -> bool:
        """Whether the state can be asked for."""

    @property
    def longest_on(self) -> timedelta:
        """For which switching on may take at most."""

    def start(self) -> None:
        """Looks whether all that is needed is there."""

    async def close(self) -> None:
        """Ends what runs."""

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """What must be known when the machine is given back; it is written down before anything is done."""

    async def on(self, host: H_contra, spec: MachineSpec, *, is_first: bool) -> None:
        """Switches it on. ``is_first``: no earlier call can have done it, so that one that is on is somebody's."""

    async def off(self, host: H_contra, assignment: Assignment) -> bool:
        """Switches it off, and tells whether it was told so now: it may be on its way already."""

    async def state(self, host: H_contra) -> PowerState:
        """Whether it is on."""

    async def free_state(self, host: H_contra) -> PowerState:
        """The same of one that may be given out; raises when it is not fit for that."""

    async def clear(self, host: H_contra, assignment: Assignment) -> None:
        """Takes away what was put in for this machine. It is off, or was never switched on."""


# -- what a list shows -------------------------------------------------------------------------------------------------
# A machine that is taken, as the list shows it: by the account, and by what its controller says. Pure.

_SHOWN: Final = 6  # machines that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long machines take."""

    power_on: timedelta  # for which one that was switched on may still look off
    power_off: timedelta  # for which one may still be on; then it is told again
    # For which one that was switched on, and was never seen on, may come up although it looks off and was told to be.
    rise: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a machine that is free is not given out."""

    why: str
    error: CloudgraftError | None = None  # what its controller said


def age(moment: datetime) -> timedelta:
    """Since then, for all that is decided by the times of hosts."""
    return age_of(moment)


def machine_of(assignment: Assignment, state: MachineState, reason: str = "") -> Machine:
    """A machine of the list."""
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
    """One that is in the inventory. ``state`` may be why nobody knows; ``why`` is what its switch said last."""
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
    # What is shown as deleting is not deleted again; and a machine that boots just then may have missed it.
    if state is PowerState.ON and told >= times.power_off:
        return machine_of(assignment, MachineState.RUNNING, "it was told to switch off, and is still on")
    return machine_of(assignment, MachineState.DELETING, "it is being switched off")


def _unconfirmed(assignment: Assignment, state: PowerState | str, why: str, *, is_young: bool) -> Machine:
    """After a switch that failed, or a crash: once it is listed nobody tries again, so it fails soon (law 7)."""
    if is_young:
        reason = f"whether it is being switched on is not known: {why}" if why else "it is being switched on"
        return machine_of(assignment, MachineState.PENDING, reason)
    seen = "it is not on" if state is PowerState.OFF else f"it {state}"
    return machine_of(assignment, MachineState.FAILED, f"{seen}: {why or 'its switch did not say that it went well'}")


def none_free(fitting: Sequence[Host], taken: Taken, refused: Mapping[str, Refusal]) -> CloudgraftError:
    """What to raise when no machine can be had. Where all fail alike, it is no lack of machines."""
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
