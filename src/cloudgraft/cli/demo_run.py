"""Plays the day of `cloudgraft demo`, live or as plain lines."""

from __future__ import annotations

import asyncio
import io
import logging
import signal
from typing import TextIO

import click
from rich.console import Console

from cloudgraft.app import logs
from cloudgraft.demo.day import play
from cloudgraft.demo.events import Pace, Summary
from cloudgraft.demo.view import LivePresenter, PlainPresenter
from cloudgraft.server.signals import run_or_interrupt


def play_plain(console: Console, speed: float | None) -> Summary | signal.Signals:
    """Plays the day as plain lines."""
    log_errors()
    return asyncio.run(run_or_interrupt(play(PlainPresenter(console, Pace(speed)))))


def play_live(console: Console, speed: float | None) -> Summary | signal.Signals:
    """Plays the day as a live display."""
    held_back = io.StringIO()  # a log line would break the display
    log_errors(held_back)
    try:
        with LivePresenter(console, Pace(speed or 1.0)) as presenter:
            return asyncio.run(run_or_interrupt(play(presenter)))
    finally:
        click.echo(held_back.getvalue(), err=True, nl=False)


def log_errors(stream: TextIO | None = None) -> None:
    """Logs only errors: a stock-out and a dying cluster are part of the demo, which explains them itself."""
    logs.configure(1, "console", stream)
    logging.getLogger("cloudgraft").setLevel(logging.ERROR)
