"""The digest of a run: every cloud call, RPC, commit and event, with its virtual time."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

_KEPT: Final = 400


class Trace:
    """Takes a line for everything that happens. The last ones are kept, for people."""

    def __init__(self, now: Callable[[], float], *, echo: Callable[[str], None] | None = None) -> None:
        self.latest: deque[str] = deque(maxlen=_KEPT)
        self.count = 0
        self._now = now
        self._echo = echo
        self._hash = hashlib.sha256()

    def __call__(self, who: str, what: str) -> None:
        """Writes one line down."""
        line = f"{self._now():.6f} {who} {what}"
        self.count += 1
        self._hash.update(line.encode())
        self.latest.append(line)
        if self._echo is not None:
            self._echo(line)

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._hash.hexdigest()
