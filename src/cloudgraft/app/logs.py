"""Configures logging: the autoscaler's -v levels, for people or for programs, with limits for drivers and libraries."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from cloudgraft.sdk.common.ratelimit import LogLimit
from cloudgraft.sdk.common.tracing import current_span
from cloudgraft.sdk.secrecy import redacted

# -- log limits --------------------------------------------------------------------------------------------------------
# Limits the log lines of drivers and libraries: a flood must not fill the disk or bury other lines.
#
# Each logger has its own rate. Lines above it are dropped and counted, and a line says how many. Our own loggers have
# no limit, except those that pass on driver output; plugins have one where their output is read.


LONGEST_VALUE: Final = 16 * 1024  # characters of a message, a traceback, or anything else in a line
_OURS: Final = "cloudgraft"
_DRIVERS: Final = ("cloudgraft.drivers", "cloudgraft.liqo", "cloudgraft.drivers.router")
_MOST_LOGGERS: Final = 256  # with their own rate; all others share one
_REST: Final = "other loggers"
_REPORT_EVERY: Final = 10.0  # seconds

log = logging.getLogger("cloudgraft.log")


class LogFlood(logging.Filter):
    """Drops lines of loggers that exceed their rate."""

    def __init__(self, *, report_every: float = _REPORT_EVERY) -> None:
        super().__init__()
        self._report_every = report_every
        self._limits: dict[str, LogLimit] = {}
        self._reports: set[str] = set()  # loggers with a pending report
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
    """Truncates values that are too long for a line, such as an exception that quotes a cloud's response."""
    return {key: _cut(value) if isinstance(value, str) else value for key, value in event.items()}


def _cut(text: str) -> str:
    """Removes secrets first: half of a secret would not be recognized."""
    return f"{redacted(text)[:LONGEST_VALUE]} […]" if len(text) > LONGEST_VALUE else text


def add_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the ids of the trace that the line belongs to, if that is recorded."""
    span = current_span()
    if span is not None and span.is_sampled:
        event["trace_id"], event["span_id"] = span.trace_id, span.span_id
    return event


FORMATS = ("console", "json")


def _levels(verbosity: int) -> Mapping[str, int]:
    """Python's log level by logger, for a -v level.

    At 4, calls that Python answers are logged too. At 5 all calls are, so the native transport answers none by itself.
    """
    if verbosity < 2:
        level = logging.CRITICAL if verbosity <= 0 else logging.WARNING
        return {"cloudgraft": level, "cloudgraft.service": level}
    return {
        "cloudgraft": logging.INFO if verbosity < 5 else logging.DEBUG,
        "cloudgraft.service": logging.INFO if verbosity < 4 else logging.DEBUG,
    }


def configure(verbosity: int, log_format: str, stream: TextIO | None = None) -> None:
    """Sends the log to standard error, or to the given stream."""
    stream = stream or sys.stderr
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        add_trace,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=stream.isatty(),
            pad_event_to=0,
            # The default shows every local variable of every frame: slow, and full of secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    final += [structlog.processors.format_exc_info] if log_format == "json" else [_printable]
    final += [cut_values, renderer]
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogFlood())
    handler.setFormatter(_WithoutSecrets(foreign_pre_chain=shared, processors=final))
    logging.captureWarnings(capture=True)  # else warnings of libraries would bypass the log, and its removal of secrets
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING if verbosity > 0 else logging.CRITICAL)
    for name, level in _levels(verbosity).items():
        logging.getLogger(name).setLevel(level)


class _WithoutSecrets(structlog.stdlib.ProcessorFormatter):
    """Removes secrets, from tracebacks too: a library's exception may contain what it has sent."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes control characters that a client or a cloud put into a name: a terminal must not interpret them."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
