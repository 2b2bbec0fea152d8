"""Chooses the moment at which a leader that was told to stop lets another replica lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_OVER: Final = 0.5  # seconds without a call after which a loop of the autoscaler counts as over
_FRESH: Final = 1.5  # seconds without a call until which it counts as only just over
_GONE: Final = 60.0  # seconds without a call after which no client counts as there
_SHORTEST: Final = 10.0  # the pod that comes in its place may only just have been started
_LONGEST: Final = 22.0  # the autoscaler's default is a loop every 10 seconds
_LOOK: Final = 0.1


async def wait_for_pause(idle: Callable[[], float]) -> None:
    """Returns after some seconds and just after a loop of the autoscaler, so that the next one meets the new leader.

    Another replica needs a moment to take over, and to be found: calls in that time may fail. ``idle`` returns the
    seconds since the latest call. An autoscaler that never pauses is not waited for for ever.
    """
    time = asyncio.get_running_loop().time
    began = time()
    while time() < began + _LONGEST:
        quiet = idle()
        if quiet > _GONE or (time() >= began + _SHORTEST and _OVER <= quiet < _FRESH):
            return
        await asyncio.sleep(_LOOK)
