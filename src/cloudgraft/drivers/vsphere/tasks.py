"""Tasks of vCenter: what it has accepted and works on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cloudgraft.drivers.vsphere import properties
from cloudgraft.drivers.vsphere.api import Data, Reference, vim
from cloudgraft.drivers.vsphere.session import Session
from cloudgraft.sdk.errors import NotFoundError, UnavailableError

__all__ = ["STATE", "TaskState", "is_over", "outcome", "wait"]

STATE: Final = "info.state"
_FIRST_LOOK: Final = 0.05  # seconds
_SLOWEST_LOOK: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """What has become of a task."""

    is_over: bool
    fault: Data = None  # why it failed
    result: Data = None


def is_over(shown: Mapping[str, Data]) -> bool:
    """Whether a task has ended, well or not."""
    return str(shown.get(STATE)) in ("success", "error")


def outcome(session: Session, task: Reference, what: str) -> TaskState:
    """What has become of a task.

    Some minutes after its end vCenter forgets a task: one that it does not know any more is over. What it came to is
    asked for only then: while it runs that is many an object, or nothing.
    """
    try:
        shown = properties.one(session, what, task, [STATE])
        if not is_over(shown):
            return TaskState(is_over=False)
        if str(shown[STATE]) == "success":
            told = properties.one(session, what, task, ["info.result"])
            return TaskState(is_over=True, result=told.get("info.result"))
        return TaskState(is_over=True, fault=_fault(session, task, what))
    except NotFoundError:
        return TaskState(is_over=True)


def _fault(session: Session, task: Reference, what: str) -> Data:
    """Why a task failed. A reason that cannot be read must not hide that it did."""
    why = "no reason is told"
    try:
        fault = properties.one(session, what, task, ["info.error"]).get("info.error")
    except UnavailableError as error:
        fault, why = None, error.message
    return fault if fault is not None else vim.fault.VimFault(msg=why)


def wait(session: Session, task: Reference, what: str, seconds: float) -> TaskState:
    """The state of a task once it is over, or after so many seconds."""
    deadline, pause = time.monotonic() + seconds, _FIRST_LOOK
    while True:
        state = outcome(session, task, what)
        left = deadline - time.monotonic()
        if state.is_over or left <= 0:
            return state
        time.sleep(min(pause, left))
        pause = min(2 * pause, _SLOWEST_LOOK)
