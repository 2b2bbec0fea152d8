"""The demo on a terminal: a full screen that is redrawn a few times a second."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from cloudgraft.demo.frame import Frame, Pace
from cloudgraft.demo.view import render, render_start

__all__ = ["LivePresenter", "has_room"]

_PICTURE: Final = 0.15  # seconds between two pictures of one frame
_LEAST_WIDTH: Final = 80
_LEAST_HEIGHT: Final = 24


def has_room(console: Console) -> bool:
    """Whether the screen can be shown there: a terminal that can move its cursor, and not too small."""
    size = console.size
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and size.width >= _LEAST_WIDTH
        and size.height >= _LEAST_HEIGHT
    )


class LivePresenter:
    """Draws frames while it is open; what was on the screen before comes back when it closes."""

    def __init__(self, console: Console, pace: Pace) -> None:
        self._console = console
        self._pace = pace
        self._tick = 0
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        """Takes the screen."""
        self._live.start()
        self._live.update(render_start(), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives it back."""
        self._live.stop()

    async def show(self, frame: Frame) -> None:
        """Draws the frame until its time is over; a resized terminal is filled anew with the next picture."""
        until = time.monotonic() + self._pace.seconds(frame)
        while True:
            width, height = self._console.size
            self._live.update(render(frame, width=width, height=height, tick=self._tick), refresh=True)
            self._tick += 1
            left = until - time.monotonic()
            await asyncio.sleep(max(0.0, min(left, _PICTURE)))
            if left <= _PICTURE:
                return
