"""Marks of domains, remembered for a while: libvirt tells those of one domain at a time only.

Without it a list of thousands of machines would be thousands of calls. Only marks of domains that run are remembered:
those of a domain that is being made may be written anew. Whoever takes the marks from one that runs, by hand, is heard
of in the end: with the next look, after 10 to 20 minutes. Nothing is deleted by what is remembered.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import Final

from cloudgraft.drivers.libvirt.marks import Marks
from cloudgraft.drivers.libvirt.states import is_active

__all__ = ["KnownMarks"]

_LASTS: Final = (600.0, 1200.0)  # seconds; not the same for all, so that they are not all asked for at once
_NOT_KNOWN: Final = 0  # the state of a domain that did not answer in time


class KnownMarks:
    """What the domains of one host carry. Its methods may be called by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[str, Marks, float]] = {}  # by id: the domain's name, its marks, until when

    def read(self, domain_id: str, name: str, state: int, ask: Callable[[], Marks | None]) -> Marks | None:
        """The marks of a domain: those that are remembered, else what ``ask`` says."""
        known = self._known.get(domain_id)
        if known is not None and known[0] == name and is_active(state) and self._clock() < known[2]:
            return known[1]
        marks = ask()
        if marks is not None and is_active(state) and state != _NOT_KNOWN:
            lasts = random.uniform(*_LASTS)  # noqa: S311 - it only spreads the load
            self._known[domain_id] = (name, marks, self._clock() + lasts)
        else:
            self._known.pop(domain_id, None)
        return marks

    def keep(self, ids: Collection[str]) -> None:
        """Forgets all domains but these."""
        for domain_id in [one for one in list(self._known) if one not in ids]:
            self._known.pop(domain_id, None)
