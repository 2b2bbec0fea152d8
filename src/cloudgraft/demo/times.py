"""The time of the demo's day: seconds since midnight, and how they are read and written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["HOUR", "MINUTE", "clock_time", "date_time", "seconds_at"]

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
_MIDNIGHT: Final = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday; prices are asked for by date


def seconds_at(text: str) -> float:
    """The seconds since midnight at ``07:30``."""
    hours, _, minutes = text.partition(":")
    return int(hours) * HOUR + int(minutes) * MINUTE


def clock_time(seconds: float) -> str:
    """What a clock on the wall shows: ``07:30``."""
    minutes = int(seconds // MINUTE)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def date_time(seconds: float) -> datetime:
    """That moment of the demo's day, for calls that want a date."""
    return _MIDNIGHT + timedelta(seconds=seconds)
