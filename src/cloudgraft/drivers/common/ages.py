"""How old something is by a mark on it, which a clock that was wrong may have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["CLOCKS_DIFFER", "age_of", "is_younger"]

CLOCKS_DIFFER: Final = timedelta(minutes=5)  # by which clocks may differ


def age_of(moment: datetime) -> timedelta:
    """Since then. What comes from the future is as old as can be: it would stay young for years."""
    age = datetime.now(UTC) - moment
    return age if age > -CLOCKS_DIFFER else timedelta.max


def is_younger(moment: datetime, than: timedelta) -> bool:
    """Whether it is not as old as that."""
    return age_of(moment) < than
