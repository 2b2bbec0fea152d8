"""A domain's state, as libvirt numbers it, and what it means for a machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from cloudgraft.drivers.common.ages import is_younger
from cloudgraft.drivers.libvirt.marks import Marks, provider_id
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import OutOfStockError

__all__ = ["has_run", "is_active", "is_being_made", "machine_of"]

_PAUSED: Final = 3
_SHUTOFF: Final = 5
_CRASHED: Final = 6
_STATES: Final = {
    0: (MachineState.PENDING, "the host does not know its state"),
    1: (MachineState.RUNNING, ""),
    2: (MachineState.RUNNING, ""),  # blocked: waits for something
    _PAUSED: (MachineState.STOPPED, "it is paused"),
    4: (MachineState.STOPPED, "it is shutting down"),
    _SHUTOFF: (MachineState.STOPPED, "it is shut off"),
    _CRASHED: (MachineState.FAILED, "it has crashed"),
    7: (MachineState.STOPPED, "it sleeps"),
}
_IO_ERROR: Final = 5  # why a domain is paused
_STARTING: Final = 11
_NEVER_RAN: Final = frozenset({0, 6})  # why one is shut off: nobody knows, which is so of a new one; it did not start
_WHY_OFF: Final = {1: "its guest shut it down", 2: "it was switched off"}
_BROKEN: Final = {3: "it crashed", 8: "libvirt's daemon was restarted and could not take it over"}
_HAS_RUN: Final = frozenset({1, 2, 4, 5, 7})  # shut down, switched off, moved to another host, saved, reverted


def is_active(state: int) -> bool:
    """Whether a domain in this state has a process."""
    return state not in (_SHUTOFF, _CRASHED)


def has_run(state: int, reason: int) -> bool:
    """Whether it runs, or certainly did. One that broke off, or whose daemon was restarted, may be half made."""
    return is_active(state) or reason in _HAS_RUN


def is_being_made(marks: Marks | None, state: int, reason: int, making: timedelta) -> bool:
    """Whether a create may still be at work on it, or may be repeated: it never started, and is not that old.

    ``making`` is how long it takes at most to make one.
    """
    return _never_ran(state, reason) and marks is not None and is_younger(marks.since, making)


def machine_of(domain_id: str, name: str, marks: Marks | None, state: int, reason: int) -> Machine:
    """A domain as a machine. One that never started was left by a create that died, and is FAILED: so it is removed."""
    seen, why, failure = _meaning(state, reason)
    if _never_ran(state, reason):
        seen, why = MachineState.FAILED, "it is off: it was never made in whole, or its host was restarted"
    known = marks.name if marks is not None else name
    return Machine(
        name=known,
        machine_id=domain_id,
        provider_id=provider_id(domain_id),
        state=seen,
        tags=dict(marks.tags) if marks is not None else {},
        created_at=marks.since if marks is not None else None,
        reason=why if known == name else f"{why or 'it runs'}; its domain was renamed by hand to {name}",
        addresses=(known,),
        failure=failure,
    )


def _never_ran(state: int, reason: int) -> bool:
    return state == _SHUTOFF and reason in _NEVER_RAN


def _meaning(state: int, reason: int) -> tuple[MachineState, str, str]:
    if state == _PAUSED and reason == _IO_ERROR:
        why = "it is paused because its disk cannot be written; is the storage pool full?"
        return MachineState.FAILED, why, OutOfStockError.slug
    if state == _PAUSED and reason == _STARTING:
        return MachineState.PENDING, "it is starting", ""
    seen, why = _STATES.get(state, (MachineState.PENDING, f"its state is {state}, which is not known here"))
    if state == _SHUTOFF and reason in _BROKEN:
        return MachineState.FAILED, _BROKEN[reason], ""
    if state == _SHUTOFF and reason in _WHY_OFF:
        why = _WHY_OFF[reason]
    return seen, why, ""
