"""What goes wrong, on command: which requests it meets, and how often."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Fault", "Faults", "Kind"]


class Kind(enum.Enum):
    """What happens."""

    ERROR = "error"  # an answer that says no; nothing is done
    ERROR_AFTER = "error after"  # it is done, and answered with an error all the same
    RESET = "reset"  # the connection breaks, and nothing is done
    RESET_AFTER = "reset after"  # it is done, and the connection breaks before the answer
    HANG = "hang"  # no answer comes, and nothing is done
    HANG_AFTER = "hang after"  # it is done, and no answer comes
    SHORT_PAGE = "short page"  # a list leaves out its last entry
    HALF_BODY = "half body"  # an answer ends in the middle
    GARBAGE = "garbage"  # an answer that is not JSON
    EMPTY = "empty"  # an answer with nothing in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    method: str = ""  # empty: any
    path: str = ""  # how it begins, without /v1
    page: int = 0  # of a list; 0: any
    times: int = 1  # how many requests it meets; negative: all, until it is removed
    status: int = 500
    code: str = ""  # empty: an answer as a proxy would make it
    message: str = "broken on command"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fault:
        """As it is sent to a fake that runs as a process."""
        return cls(**{**data, "kind": Kind(data["kind"])})

    def meets(self, method: str, path: str, page: int) -> bool:
        """Whether it is about this request."""
        return self.times != 0 and self.method in ("", method) and path.startswith(self.path) and self.page in (0, page)


class Faults:
    """Those that are ordered; the first that fits is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordered: list[Fault] = []

    def order(self, *faults: Fault) -> None:
        """In the place of those that were ordered before; none to make everything well."""
        with self._lock:
            self._ordered = list(faults)

    def take(self, method: str, path: str, page: int) -> Fault | None:
        """What goes wrong with this request, if anything."""
        with self._lock:
            for index, fault in enumerate(self._ordered):
                if fault.meets(method, path, page):
                    self._ordered[index] = replace(fault, times=fault.times - 1)
                    return fault
        return None
