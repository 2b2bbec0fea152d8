"""Serializes calls for each machine: one call must not delete what another is creating."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from cloudgraft.sdk.errors import UnavailableError


class NamedLocks:
    """Locks by name; an unused one is dropped."""

    def __init__(self, longest: timedelta) -> None:
        self._longest = longest
        self._guard = threading.Condition()
        self._locks: dict[str, threading.Lock] = {}
        self._wanted: Counter[str] = Counter()

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        """Holds the lock of a name. Raises UnavailableError when the wait takes too long; then nothing was done."""
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
            self._wanted[name] += 1
        try:
            if not lock.acquire(timeout=self._longest.total_seconds()):
                raise UnavailableError(f"another call about {name} is still under way; nothing was done")
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                self._wanted[name] -= 1
                if not self._wanted[name]:
                    del self._locks[name], self._wanted[name]
                    self._guard.notify_all()

    def settle(self, longest: timedelta) -> None:
        """Waits until no call is in progress, but at most ``longest``."""
        with self._guard:
            self._guard.wait_for(lambda: not self._wanted, longest.total_seconds())
