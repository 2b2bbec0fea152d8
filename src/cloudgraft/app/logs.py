"""What is logged, and how it looks: the autoscaler's -v levels, for people or for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TextIO

import click
import structlog

from cloudgraft.app.log_limits import LogFlood, cut_values
from cloudgraft.sdk.secrecy import redacted

FORMATS = ("console", "json")


def _levels(verbosity: int) -> Mapping[str, int]:
    """By logger, the level of Python's logging for a -v level.

    At 4, calls that Python answers are logged too. At 5 all calls are, and for that none is answered without Python.
    """
    if verbosity < 2:
        level = logging.CRITICAL if verbosity <= 0 else logging.WARNING
        return {"cloudgraft": level, "cloudgraft.service": level}
    return {
        "cloudgraft": logging.INFO if verbosity < 5 else logging.DEBUG,
        "cloudgraft.service": logging.INFO if verbosity < 4 else logging.DEBUG,
    }


def configure(verbosity: int, log_format: str, stream: TextIO | None = None) -> None:
    """Sends the log to standard error, or to the stream given."""
    stream = stream or sys.stderr
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
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
    logging.captureWarnings(capture=True)  # else a library's would stand beside the log, with whatever secrets it has
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING if verbosity > 0 else logging.CRITICAL)
    for name, level in _levels(verbosity).items():
        logging.getLogger(name).setLevel(level)


class _WithoutSecrets(structlog.stdlib.ProcessorFormatter):
    """Tracebacks too: a library's exception may hold whatever it has sent."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes what a client or a cloud may have put into a name: a terminal must not obey it."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -v and --log-format to a command."""
    command = click.option(
        "--log-format", type=click.Choice(FORMATS), default=None, help="How the log looks (default: console)."
    )(command)
    return click.option(
        "-v",
        "--verbosity",
        type=click.IntRange(0, 10),
        default=None,
        help="1: errors, 2: starts, stops and reloads (default), 4: calls that Python answers, 5: every call.",
    )(command)
