"""Limits what drivers and libraries write into the log: one that floods must not fill the disk or bury other lines.

Each logger has a rate of its own. Lines above it are dropped and counted, and a line says how many. Our own loggers
have no limit, except those that pass on what drivers say; plugins have one where their output is read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import MutableMapping
from typing import Any, Final

from cloudgraft.sdk.ratelimit import LogLimit
from cloudgraft.sdk.secrecy import redacted

__all__ = ["LONGEST_VALUE", "LogFlood", "cut_values"]

LONGEST_VALUE: Final = 16 * 1024  # characters of a message, a traceback, or anything else in a line
_OURS: Final = "cloudgraft"
_DRIVERS: Final = ("cloudgraft.drivers", "cloudgraft.liqo", "cloudgraft.drivers.router")
_MOST_LOGGERS: Final = 256  # with a rate of their own; all others share one
_REST: Final = "other loggers"
_REPORT_EVERY: Final = 10.0  # seconds

log = logging.getLogger("cloudgraft.log")


class LogFlood(logging.Filter):
    """Lets lines through as long as their logger keeps to its rate."""

    def __init__(self, *, report_every: float = _REPORT_EVERY) -> None:
        super().__init__()
        self._report_every = report_every
        self._limits: dict[str, LogLimit] = {}
        self._reports: set[str] = set()  # loggers of which one is due
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be written."""
        if not _is_limited(record.name):
            return True
        with self._lock:
            name = record.name if record.name in self._limits or len(self._limits) < _MOST_LOGGERS else _REST
            limit = self._limits.setdefault(name, LogLimit(lines_per_second=50, bytes_per_second=64 * 1024))
            if limit.admit(min(len(str(record.msg)), LONGEST_VALUE)):
                return True
            if name not in self._reports:
                self._reports.add(name)
                timer = threading.Timer(self._report_every, self._report, (name,))
                timer.daemon = True
                timer.start()
        return False

    def _report(self, name: str) -> None:
        with self._lock:
            self._reports.discard(name)
            dropped = self._limits[name].dropped(is_last=True)
        if dropped is not None:
            extra = {"source": name, "dropped_lines": dropped.lines, "dropped_bytes": dropped.size}
            log.warning("%s logs too much: %s were dropped", name, dropped, extra=extra)


def _is_limited(name: str) -> bool:
    if name == _OURS or name.startswith(f"{_OURS}."):
        return name.startswith(_DRIVERS)
    return True


def cut_values(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cuts what is too long for a line, such as an exception that quotes an answer of a cloud."""
    return {key: _cut(value) if isinstance(value, str) else value for key, value in event.items()}


def _cut(text: str) -> str:
    """Without secrets before it is cut: half of one is not known as such."""
    return f"{redacted(text)[:LONGEST_VALUE]} […]" if len(text) > LONGEST_VALUE else text
