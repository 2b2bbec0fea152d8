"""Decides when an action may be retried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.backoff import pause_after

_SETTLING: Final = 1.0  # seconds until the effect of an action becomes visible
_LONGEST: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Last:
    failures: int  # in a row
    not_before: float


class Attempts:
    """Remembers recent actions per key, so that none is repeated at once, or too often in vain."""

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def is_due(self, key: str, now: float) -> bool:
        """Whether it may be tried now."""
        last = self._last.get(key)
        return last is None or last.not_before <= now

    def failures(self, key: str) -> int:
        """The number of consecutive failures."""
        last = self._last.get(key)
        return 0 if last is None else last.failures

    def succeeded(self, key: str, now: float) -> None:
        """Records a success; if it still seems needed in a second, it is done again."""
        self._last[key] = _Last(0, now + _SETTLING)

    def failed(self, key: str, now: float) -> int:
        """Records a failure, which doubles the pause. Returns the number of consecutive failures, up to ten."""
        last = self._last.get(key)
        failures = 1 if last is None else min(last.failures + 1, 10)
        self._last[key] = _Last(failures, now + pause_after(failures, first=_SETTLING, longest=_LONGEST))
        return failures

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forgets all other keys: an action that is needed again later starts afresh."""
        for key in self._last.keys() - set(keys):
            del self._last[key]
