"""How long to wait before a call is made again."""

from __future__ import annotations

import random
from typing import Final

from cloudgraft.engine.groups.specs import CloudSettings

__all__ = ["LONGEST_HINT", "delay", "hinted", "until_next_list"]

LONGEST_HINT: Final = 3600.0  # seconds: a cloud that asks for more is taken to be mistaken, and asked again
_HURRY: Final = 5  # so much more often is a cloud listed while something is under way


def delay(settings: CloudSettings, failures: int, hint: float | None = None) -> float:
    """Seconds to wait after that many failures: doubling up to a limit, spread so that not all come back at once.

    ``hint`` is what the cloud itself asked for; it is not undercut, within reason.
    """
    first, longest = settings.backoff_initial.total_seconds(), settings.backoff_max.total_seconds()
    full = min(longest, first * 2.0 ** min(failures - 1, 30))
    spread = full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    return max(spread, hinted(hint))


def hinted(seconds: float | None) -> float:
    """What a cloud asked for, within reason: no header may put a call off for ever. Nothing for what is no number."""
    is_time = isinstance(seconds, int | float) and seconds > 0  # drivers are written by others
    return min(float(seconds or 0), LONGEST_HINT) if is_time else 0.0


def until_next_list(settings: CloudSettings, failures: int, hint: float | None, *, is_hurried: bool) -> float:
    """Seconds until a cloud is listed again, after so many lists in a row that failed.

    One that failed may be bad luck, so that the next one comes soon; unless the cloud asked to be left alone.
    """
    every = settings.observe_every.total_seconds()
    if failures > 1:
        return max(every, delay(settings, failures, hint))
    if failures == 1:
        return max(every / _HURRY, hinted(hint))
    return every / _HURRY if is_hurried else every
