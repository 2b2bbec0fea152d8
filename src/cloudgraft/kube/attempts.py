"""Decides when an action may be retried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cloudgraft.sdk.common.backoff import pause_after

_SETTLING: Final = 1.0  # seconds until the effect of an action becomes visible
_LONGEST: Final = 30.0


class Attempts:
    """Remembers recent actions per key, so that none is repeated at once, or too often in vain."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}  # in a row
        self._not_before: dict[str, float] = {}

    def is_due(self, key: str, now: float) -> bool:
        """Whether it may be tried now."""
        return self._not_before.get(key, now) <= now

    def failures(self, key: str) -> int:
        """The number of consecutive failures."""
        return self._failures.get(key, 0)

    def succeeded(self, key: str, now: float) -> None:
        """Records a success; if it still seems needed in a second, it is done again."""
        self._failures[key], self._not_before[key] = 0, now + _SETTLING

    def failed(self, key: str, now: float) -> int:
        """Records a failure, which doubles the pause. Returns the number of consecutive failures, up to ten."""
        failures = self._failures[key] = min(self.failures(key) + 1, 10)
        self._not_before[key] = now + pause_after(failures, first=_SETTLING, longest=_LONGEST)
        return failures

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forgets all other keys: an action that is needed again later starts afresh."""
        for key in self._not_before.keys() - set(keys):
            del self._failures[key], self._not_before[key]
