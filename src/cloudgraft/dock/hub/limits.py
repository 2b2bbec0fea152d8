"""How much of the hub one driver may take."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.sdk.errors import RateLimitedError

__all__ = ["Bucket", "Limits"]


class Bucket:
    """So many in a row, and so many a second after that."""

    def __init__(self, size: int, per_second: float, clock: Callable[[], float]) -> None:
        self._size = float(size)
        self._per_second = per_second
        self._clock = clock
        self._left = float(size)
        self._at = clock()

    def take(self) -> float:
        """Takes one; gives the seconds until there is one again, 0 when there was one."""
        now = self._clock()
        self._left = min(self._size, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second

    @property
    def full(self) -> bool:
        """Whether nothing was taken for long."""
        return self._left + (self._clock() - self._at) * self._per_second >= self._size


class Limits:
    """How many connections there may be, of one identity and of all together, and how often one may come."""

    def __init__(self, settings: HubSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._arrivals: dict[str, Bucket] = {}

    @contextlib.contextmanager
    def place(self, identity: str) -> Iterator[None]:
        """A place for one connection; raises RateLimitedError when there is none."""
        self._arrive(identity)
        if self._open.total() >= self._settings.max_sessions:
            raise RateLimitedError(
                f"the hub has {self._settings.max_sessions} drivers, and takes no more", retry_after=30
            )
        if self._open[identity] >= self._settings.max_sessions_per_identity:
            raise RateLimitedError(f"{identity} has as many connections as one identity may have", retry_after=30)
        self._open[identity] += 1
        try:
            yield
        finally:
            self._open[identity] -= 1
            if not self._open[identity]:
                del self._open[identity]

    def _arrive(self, identity: str) -> None:
        bucket = self._arrivals.get(identity)
        if bucket is None:
            self._arrivals = {name: kept for name, kept in self._arrivals.items() if not kept.full}
            settings = self._settings
            bucket = Bucket(settings.registrations, settings.registrations_per_second, self._clock)
            self._arrivals[identity] = bucket
        seconds = bucket.take()
        if seconds:
            raise RateLimitedError(f"{identity} connects too often: wait between two tries", retry_after=seconds)
