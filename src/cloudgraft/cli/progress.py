"""Shows on a terminal that a command is at work, and on what. In a pipe it shows nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from rich.console import Console

T = TypeVar("T")
_SOON: Final = 0.5  # seconds; what takes less time shows nothing
_EVERY: Final = 500  # lines


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Shows the text on standard error while the block lasts; yields a function that changes the text."""
    screen = Console(stderr=True)
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield lambda _: None
        return
    status = screen.status(f"{what} …")
    timer = threading.Timer(_SOON, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda now: status.update(f"{now} …")
    finally:
        timer.cancel()
        timer.join()  # else it might start after the end
        status.stop()


def counted(items: Iterable[T], what: str, show: Callable[[str], None]) -> Iterator[T]:
    """Passes the items on, and shows how many there were."""
    for number, item in enumerate(items, start=1):
        if number % _EVERY == 0:
            show(f"{what}: {number:,} lines")
        yield item
