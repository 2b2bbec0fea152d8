"""Decides before each call whether it may be answered now, and may wait for a better moment."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import UnavailableError

_ANSWER: Final = 1.0  # seconds that a call keeps for its answer when it was held back
_LONGEST_HOLD: Final = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Gate:
    """What every call has to pass."""

    check: Callable[[], None]  # raises a CloudgraftError while no call may be answered: another replica leads, perhaps
    wait: Callable[[float], Awaitable[None]] | None = None  # for at most these seconds, until another try makes sense

    async def let_through(self, seconds: float) -> float:
        """Returns how many of the call's ``seconds`` it took. Raises a CloudgraftError when the call may not pass."""
        try:
            self.check()
        except UnavailableError:
            if self.wait is None:
                raise
            started = time.monotonic()
            await self.wait(min(seconds - _ANSWER, _LONGEST_HOLD))
            self.check()
            return time.monotonic() - started
        return 0.0
