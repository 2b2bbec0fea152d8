"""Tasks: what takes Proxmox longer than a request is a worker on a node, which is asked until it has ended."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.errors import error_of_task
from cloudgraft.sdk.errors import DeadlineError, UnavailableError

__all__ = ["Clock", "Tasks"]

_FIRST_PAUSE: Final = 0.05  # seconds
_LONGEST_PAUSE: Final = 1.0


class Clock:
    """Until when something may be waited for."""

    def __init__(self, longest: timedelta) -> None:
        self.until = time.monotonic() + longest.total_seconds()
        self._pause = _FIRST_PAUSE

    def pause(self, what: str) -> None:
        """A little longer each time; raises DeadlineError when there is no time left."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise DeadlineError(f"{what}: it takes too long, and goes on; what becomes of it is not known")
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 1.5, _LONGEST_PAUSE)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be waited for."""
        return time.monotonic() >= self.until

    def rest(self) -> None:
        """The next thing that is waited for may be quick."""
        self._pause = _FIRST_PAUSE


class Tasks:
    """The tasks of a cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def finish(self, answer: object, what: str, clock: Clock) -> None:
        """Waits for the task that a change was answered with, if it was; raises what its end means."""
        if not isinstance(answer, str) or not answer.startswith("UPID:"):
            return  # it was done at once
        node = answer.split(":")[1]
        clock.rest()
        while True:
            status = self._status(node, answer, what)
            if status.get("status") == "stopped":
                _check(what, str(status.get("exitstatus", "")))
                return
            clock.pause(what)

    def _status(self, node: str, upid: str, what: str) -> dict[str, object]:
        """A node that does not answer now may do so later: its task goes on meanwhile."""
        try:
            status = self._api.get(f"nodes/{node}/tasks/{upid}/status", what)
        except UnavailableError:
            return {}
        return status if isinstance(status, dict) else {}


def _check(what: str, end: str) -> None:
    if end != "OK" and not end.startswith("WARNINGS"):
        if end in ("", "unexpected status"):  # the node was switched off in the middle
            raise DeadlineError(f"{what}: its task has ended, and nobody knows how")
        raise error_of_task(what, end)
