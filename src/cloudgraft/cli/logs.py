"""What is logged, and how it looks: the autoscaler's -v levels, for people or for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click
import structlog

FORMATS = ("console", "json")


def level_for(verbosity: int) -> int:
    """The level of Python's logging for a -v level: 0 nothing, 1 errors, 2 events such as a start, 5 every call."""
    if verbosity <= 0:
        return logging.CRITICAL
    if verbosity == 1:
        return logging.WARNING
    return logging.INFO if verbosity < 5 else logging.DEBUG


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
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
    )
    final = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    if log_format == "json":
        final.insert(1, structlog.processors.format_exc_info)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=final))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING if verbosity > 0 else logging.CRITICAL)
    logging.getLogger("cloudgraft").setLevel(level_for(verbosity))


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
        help="1: errors, 2: starts, stops and reloads (default), 5: every call.",
    )(command)
