"""Chooses the moment at which a leader that was told to stop lets another replica lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_OVER: Final = 1.0  # seconds without a call after which a loop of the autoscaler counts as over
_FRESH: Final = 2.0  # seconds for which it then counts as only just over
_GONE: Final = 60.0  # seconds without a call after which no client counts as there
_LONGEST: Final = 12.0  # one loop every 10 seconds is the autoscaler's default
_LOOK: Final = 0.1


async def wait_for_pause(idle: Callable[[], float]) -> None:
    """Returns just after a loop of the autoscaler, so that the next one meets the new leader; or after 12 seconds.

    Another replica needs a moment to take over, and to be found: calls in that time fail. ``idle`` returns the seconds
    since the latest call.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + _LONGEST
    while loop.time() < ends:
        if _OVER <= (quiet := idle()) < _FRESH or quiet > _GONE:
            return
        await asyncio.sleep(_LOOK)
