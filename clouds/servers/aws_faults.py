"""What the proxy before moto is told to do wrong."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Fault", "Kind"]

_HTML: Final = b"<!DOCTYPE html><html><head><title>Oops</title></head><body>It did not work.<br></body></html>"


class Kind(enum.Enum):
    """What goes wrong with a request."""

    ERROR = "error"  # refused with a code; nothing is done
    HTML = "html"  # carried out, but the answer is a page for people, with the status
    LOST = "lost"  # carried out, and the connection is reset in place of an answer
    HANG = "hang"  # carried out, and no answer comes
    HALF = "half"  # carried out, and half of the answer comes, as if it were all
    CUT = "cut"  # carried out, and the connection ends in the middle of the answer


@dataclass(slots=True, kw_only=True)
class Fault:
    """Goes wrong with the next requests that fit."""

    kind: Kind = Kind.ERROR
    action: str = ""  # such as RunInstances; empty: any
    key: str = ""  # whose requests, by the access key id; empty: everybody's
    times: int | None = 1  # None: until the faults are cleared
    after: int = 0  # requests that fit and are left alone before
    code: str = ""
    message: str = "no"
    status: int = 400
    headers: Mapping[str, str] = field(default_factory=dict)
    page: bytes = _HTML

    def is_due(self, action: str, key: str) -> bool:
        """Whether this goes wrong with that request; it is counted."""
        if self.action not in ("", action) or self.key not in ("", key) or self.times == 0:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times = None if self.times is None else self.times - 1
        return True
