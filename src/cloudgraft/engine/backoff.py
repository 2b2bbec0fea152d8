"""How long to wait before a call is made again."""

from __future__ import annotations

import random

from cloudgraft.engine.specs import CloudSettings

__all__ = ["delay"]


def delay(settings: CloudSettings, failures: int, hint: float | None = None) -> float:
    """Seconds to wait after that many failures: doubling up to a limit, spread so that not all come back at once.

    ``hint`` is what the cloud itself asked for; it is never undercut.
    """
    first, longest = settings.backoff_initial.total_seconds(), settings.backoff_max.total_seconds()
    full = min(longest, first * 2.0 ** min(failures - 1, 30))
    spread = full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    return max(spread, hint or 0.0)
