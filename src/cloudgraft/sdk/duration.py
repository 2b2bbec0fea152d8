"""Parses and formats durations in Go's syntax: ``5s``, ``1m30s``, ``1.5h``, ``250ms``.

The autoscaler's flags, its cloud-config and our own file all use this form. Parsing and formatting match Go to the
nanosecond. A :class:`~datetime.timedelta` is only exact to microseconds, so each function comes twice: with whole
nanoseconds where exactness matters, and with ``timedelta`` for everything else.
"""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign, U+00B5
    "μs": 1_000,  # the Greek letter mu, U+03BC; Go accepts both
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LIMIT = 1 << 63  # Go's Duration is a signed 64-bit number of nanoseconds
_TERM = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


def parse_nanoseconds(text: str) -> int:
    """Parses a duration to whole nanoseconds, exactly as Go's ``time.ParseDuration`` does.

    Raises ValueError with a message that says what a duration looks like.
    """
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise _invalid(text)
    total = 0
    for match in _TERM.finditer(rest):
        if match.group():  # an empty match marks the end
            total += _term(match, text)
        if total > _LIMIT:
            raise _invalid(text)
    if total == _LIMIT and not negative:
        raise _invalid(text)
    return -total if negative else total


def _term(match: re.Match[str], text: str) -> int:
    """Parses one number with its unit, such as the ``1.5h`` of ``1.5h30m``."""
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
    if not whole and not fraction:
        raise _invalid(text)
    if not unit:
        raise ValueError(f"missing unit in duration {text!r}: write a number with ns, us, ms, s, m or h, such as 5s")
    if unit not in _UNITS:
        raise ValueError(f"unknown unit {unit!r} in duration {text!r}: the units are ns, us, ms, s, m and h")
    digits = whole.lstrip("0")
    if len(digits) > 19:  # more than a Go Duration holds; also keeps a megabyte of digits from being converted
        raise _invalid(text)
    value = int(digits or "0") * _UNITS[unit]
    return value + _fraction(fraction, _UNITS[unit]) if value <= _LIMIT else value


def _fraction(digits: str, unit: int) -> int:
    """Returns the part after the point in nanoseconds, rounded as Go does: in floating point, towards zero."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > (_LIMIT - 1) // 10 or number * 10 + int(digit) > _LIMIT:
            break  # further digits are below a nanosecond; Go ignores them too
        number = number * 10 + int(digit)
        scale *= 10
    return int(float(number) * (float(unit) / scale))


def _invalid(text: str) -> ValueError:
    shown = text if len(text) <= 40 else text[:40] + "…"
    return ValueError(f"invalid duration {shown!r}: write numbers with units, such as 5s, 1m30s or 250ms")


def parse_duration(text: str) -> timedelta:
    """Parses a duration to the nearest microsecond. A duration that is not zero never becomes zero.

    Raises ValueError with a message that says what a duration looks like.
    """
    nanoseconds = parse_nanoseconds(text)
    size = (abs(nanoseconds) + 500) // 1000 or (1 if nanoseconds else 0)
    microseconds = size if nanoseconds >= 0 else -size
    return timedelta(microseconds=microseconds)


def format_nanoseconds(nanoseconds: int) -> str:
    """Formats a duration as Go's ``Duration.String`` does."""
    sign, rest = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if rest == 0:
        return "0s"
    if rest < _UNITS["s"]:
        unit = "ns" if rest < 1_000 else "µs" if rest < 1_000_000 else "ms"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _UNITS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(number: int, unit: int) -> str:
    """``number / unit`` as a decimal without trailing zeros; the unit is a power of ten."""
    whole, rest = divmod(number, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def format_duration(duration: timedelta) -> str:
    """Formats a duration as Go does: ``timedelta(seconds=90)`` is ``1m30s``."""
    microseconds = (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    return format_nanoseconds(microseconds * 1000)
