"""Lets a command wait for a server that is just starting: the option `--wait`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import click

from cloudgraft.cli.terminal import duration
from cloudgraft.sdk.duration import parse_duration

_PROBE_EVERY: Final = 0.2  # seconds
_WAIT: Final = "1m"


class WaitingCommand(click.Command):
    """Lets --wait stand alone: what follows it is its value only if it is a duration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gives a lone --wait its value."""
        pairs = itertools.zip_longest(args, args[1:], fillvalue="")
        alone = [f"{arg}={_WAIT}" if arg == "--wait" and not _is_duration(after) else arg for arg, after in pairs]
        return super().parse_args(ctx, alone)


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def wait_option(then: str) -> Callable[..., Any]:
    """Adds --wait; ``then`` is what the command does when the server answers."""
    return click.option(
        "--wait",
        default="",
        callback=duration,
        metavar="[DURATION]",
        help=f"Wait for a server that is just starting, for {_WAIT} unless you say; then {then}.",
    )


def wait_while(is_away: Callable[[], Awaitable[bool]], wait: timedelta) -> None:
    """Asks until the server answers or the time is up. ``is_away`` connects anew each time."""
    ends = time.monotonic() + wait.total_seconds()

    async def look() -> bool:
        return await is_away()

    while asyncio.run(look()) and time.monotonic() < ends:
        time.sleep(_PROBE_EVERY)
