"""What goes wrong, on command: which requests it meets, and how often."""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Fault", "Faults", "Kind"]


class Kind(enum.Enum):
    """What happens."""

    ERROR = "error"  # an answer that says no; nothing is done
    ERROR_AFTER = "error after"  # it is done, and answered with an error all the same
    TASK = "task"  # the task that is begun fails
    RESET = "reset"  # the connection breaks, and nothing is done
    RESET_AFTER = "reset after"  # it is done, and the connection breaks before the answer
    HANG = "hang"  # no answer comes, and nothing is done
    HANG_AFTER = "hang after"  # it is done, and no answer comes
    HALF_BODY = "half body"  # an answer ends in the middle
    GARBAGE = "garbage"  # an answer that is not JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    method: str = ""  # empty: any
    path: str = ""  # a regular expression that is found in it, without /api2/json
    skip: int = 0  # how many such requests it lets pass before
    times: int = 1  # how many requests it meets; negative: all, until it is removed
    status: int = 500
    message: str = "broken on command"  # Proxmox puts it into the first line of an answer; or a task's last word
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fault:
        """As it is sent to a fake that runs as a process."""
        return cls(**{**data, "kind": Kind(data["kind"])})

    def meets(self, method: str, path: str) -> bool:
        """Whether it is about this request."""
        return self.times != 0 and self.method in ("", method) and re.search(self.path, path) is not None


class Faults:
    """Those that are ordered; the first that fits is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordered: list[Fault] = []

    def order(self, *faults: Fault) -> None:
        """In the place of those that were ordered before; none to make everything well."""
        with self._lock:
            self._ordered = list(faults)

    def take(self, method: str, path: str) -> Fault | None:
        """What goes wrong with this request, if anything."""
        with self._lock:
            for index, fault in enumerate(self._ordered):
                if fault.meets(method, path):
                    if fault.skip > 0:
                        self._ordered[index] = replace(fault, skip=fault.skip - 1)
                        continue
                    self._ordered[index] = replace(fault, times=fault.times - 1)
                    return fault
        return None
