"""Limits log lines that others can cause, and reports how many were dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from cloudgraft.sdk.ratelimit import LogLimit

__all__ = ["RateLimitedLog"]


class RateLimitedLog:
    """Writes at most so many lines a minute. A later line says how many were dropped."""

    def __init__(self, logger: logging.Logger, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Safe to use from any thread."""
        self._logger = logger
        self._limit = LogLimit(lines_per_second=per_minute / 60, burst_seconds=60.0, report_every=60.0, clock=clock)

    def warning(self, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Writes the line, or counts it as dropped."""
        if not self._limit.admit():
            return
        dropped = self._limit.dropped()
        if dropped is not None:
            self._logger.warning("dropped %d log lines like the next one", dropped.lines)
        self._logger.warning(message, *args, extra=extra)
