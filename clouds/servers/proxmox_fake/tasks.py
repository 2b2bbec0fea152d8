"""Tasks, and whatever else happens at a time: done when the next request comes, in the order in which it was due."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clouds.servers.proxmox_fake.refusals import RefusedError, TaskError

__all__ = ["Agenda", "Tasks"]

Json = dict[str, Any]


class Agenda:
    """What is to happen, and when."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Plans something, by the monotonic clock."""
        heapq.heappush(self._due, (when, next(self._numbers), act))

    def hurry(self) -> None:
        """Lets all that is planned be due now, in its order: also what was planned for never."""
        self._due = [(0.0, number, act) for _, number, act in sorted(self._due, key=lambda one: one[:2])]

    def advance(self) -> None:
        """Does what is due by now."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()


@dataclass(slots=True, kw_only=True)
class _Task:
    upid: str
    node: str
    kind: str
    guest: str
    user: str
    started: int
    end: str = ""  # its last word; empty while it runs


class Tasks:
    """The workers of all nodes."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._numbers = itertools.count(0x1000)
        self._all: dict[str, _Task] = {}
        self.next_failure = ""  # the last word of the task that is begun next, which then does nothing

    def begin(
        self,
        node: str,
        kind: str,
        guest: object,
        user: str,
        seconds: float,
        act: Callable[[], None],
        undo: Callable[[], None] = lambda: None,
    ) -> str:
        """Begins a task, which does its work when its time is over, or fails and undoes it; its UPID."""
        now = int(time.time())
        pid = next(self._numbers)
        upid = f"UPID:{node}:{pid:08X}:{pid:08X}:{now:08X}:{kind}:{guest}:{user}:"
        task = _Task(upid=upid, node=node, kind=kind, guest=str(guest), user=user, started=now)
        self._all[upid] = task
        failure, self.next_failure = self.next_failure, ""

        def work() -> None:
            try:
                _fail(failure) if failure else act()
            except (TaskError, RefusedError) as error:
                undo()
                task.end = str(error)
            else:
                task.end = "OK"

        self._agenda.at(time.monotonic() + seconds, work)
        return upid

    def status(self, node: str, upid: str) -> Json:
        """How it is with a task."""
        task = self._all.get(upid)
        if task is None or task.node != node:
            raise RefusedError(400, "Parameter verification failed.", {"upid": "no such task"})
        status: Json = {
            "upid": upid,
            "node": node,
            "pid": int(upid.split(":")[2], 16),
            "pstart": int(upid.split(":")[3], 16),
            "starttime": task.started,
            "type": task.kind,
            "id": task.guest,
            "user": task.user,
            "status": "stopped" if task.end else "running",
        }
        return status | ({"exitstatus": task.end} if task.end else {})


def _fail(message: str) -> None:
    raise TaskError(message)
