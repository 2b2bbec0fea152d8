"""The demo as plain lines, one per thing that happens: for pipes, logs and dumb terminals."""

from __future__ import annotations

from rich.console import Console

from cloudgraft.demo.events import Kind
from cloudgraft.demo.frame import Frame, Pace
from cloudgraft.demo.times import clock_time

__all__ = ["PlainPresenter"]


class PlainPresenter:
    """Prints each event once."""

    def __init__(self, console: Console, pace: Pace) -> None:
        self._console = console
        self._pace = pace

    async def show(self, frame: Frame) -> None:
        """Prints what is new, and waits if a speed was asked for."""
        if frame.is_news:
            event = frame.events[-1]
            if event.kind is Kind.START:
                self._print(f"serving on {frame.address} over mTLS; a client calls it as the autoscaler would\n")
            self._print(f"{clock_time(event.time)}  {event.kind.value:<10}  {event.headline}")
            if event.detail:
                self._print(f"{'':19}{event.detail}")
        await self._pace.wait(frame)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
