"""How old something is by a mark on it, which a clock that was wrong may have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["is_younger"]

_MARGIN: Final = timedelta(minutes=5)  # by which clocks may differ


def is_younger(moment: datetime, than: timedelta) -> bool:
    """Whether it is not as old as that. What comes from the future is not young: it would stay so for years."""
    age = datetime.now(UTC) - moment
    return -_MARGIN < age < than
