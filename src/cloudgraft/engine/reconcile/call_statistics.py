"""Counts the calls to one cloud that ended: by result, by duration, and those that came near their timeout."""

from __future__ import annotations

from collections import Counter
from typing import Final

from cloudgraft.engine.durations import Durations
from cloudgraft.sdk.errors import error_table

_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_NEAR: Final = 0.8  # of the timeout
_COUNTED_FROM_ZERO: Final = ("create", "delete", "list")
OK: Final = "ok"


class CallStatistics:
    """The calls of one cloud since this process has used it.

    Creates, deletes and lists are counted from zero: Prometheus takes a counter that begins with 1 for no increase.
    """

    def __init__(self) -> None:
        results = (OK, *(error.slug for error in error_table()))
        self.ended: Counter[tuple[str, str]] = Counter()  # by call and by "ok" or the error's name
        self.ended.update({(call, result): 0 for call in _COUNTED_FROM_ZERO for result in results})
        self.near_timeout: Counter[str] = Counter(dict.fromkeys(_COUNTED_FROM_ZERO, 0))
        self.durations = {call: Durations(_BOUNDS) for call in _COUNTED_FROM_ZERO}

    def add(self, call: str, result: str, seconds: float, timeout: float) -> None:
        """Counts a call that ended after so many seconds."""
        self.ended[call, result] += 1
        self.near_timeout[call] += seconds > _NEAR * timeout
        self.durations.setdefault(call, Durations(_BOUNDS)).add(seconds)
