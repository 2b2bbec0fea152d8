"""Where a process under test is killed: a name for every such moment, and the trap that it walks into."""

from __future__ import annotations

import enum
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass


class Kind(enum.Enum):
    """What the process is doing."""

    WRITE = "commit"  # of a transaction that changes the journal
    IDENTITY = "identity"  # the file beside the journal
    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    CATALOG = "catalog"  # shapes and prices


class When(enum.Enum):
    """On which side of it."""

    BEFORE = "before"  # of a commit: its statements are made. Of a call: it was not sent
    AFTER = "after"  # of a commit: it is on disk, and nobody knows. Of a call: it is done, and the answer was not seen


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One moment of a scripted life: the ``count``-th time in that phase."""

    phase: str
    kind: str
    when: str
    count: int

    def __str__(self) -> str:
        return f"{self.phase}: {self.when} {self.kind} {self.count}"


class Trap:
    """Lives in the process under test, counts the moments that it passes, and kills it at one of them. Thread-safe."""

    def __init__(self, phase: str, point: Point | None) -> None:
        """Without a point it only counts."""
        self._phase = phase
        self._point = point
        self._passed: Counter[Point] = Counter()
        self._lock = threading.Lock()

    def enter(self, phase: str) -> None:
        """The life goes on with this phase."""
        with self._lock:
            self._phase = phase

    def passed(self) -> dict[Point, int]:
        """How many moments of each kind there were; their own count is 0."""
        with self._lock:
            return dict(self._passed)

    def at(self, kind: enum.Enum, when: When) -> None:
        """The process is at such a moment: of a Kind, or of one that another sweep has beside them."""
        with self._lock:
            here = Point(self._phase, kind.value, when.value, 0)
            self._passed[here] += 1
            if self._point == Point(here.phase, here.kind, here.when, self._passed[here]):
                os.kill(os.getpid(), signal.SIGKILL)
