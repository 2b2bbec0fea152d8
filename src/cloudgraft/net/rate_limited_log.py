"""Limits log lines that others can cause, and reports how many were dropped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

__all__ = ["RateLimitedLog"]


class RateLimitedLog:
    """Writes at most so many lines a minute. The first line of the next minute says how many were dropped."""

    def __init__(self, logger: logging.Logger, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Safe to use from any thread."""
        self._logger = logger
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._minute_ends = clock() + 60.0
        self._written = 0
        self._dropped = 0

    def warning(self, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Writes the line, or counts it as dropped."""
        with self._lock:
            now = self._clock()
            dropped = 0
            if now >= self._minute_ends:
                dropped, self._dropped, self._written = self._dropped, 0, 0
                self._minute_ends = now + 60.0
            is_written = self._written < self._per_minute
            self._written += is_written
            self._dropped += not is_written
        if dropped:
            self._logger.warning("dropped %d log lines like the next one", dropped)
        if is_written:
            self._logger.warning(message, *args, extra=extra)
