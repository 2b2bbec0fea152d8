"""Label selectors, as the API reference has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["SelectorError", "matches"]

_PARTS: Final = re.compile(r",(?![^(]*\))")  # commas between parentheses separate values
_IN: Final = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_IS: Final = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_THERE: Final = re.compile(r"(!?)([^=!\s]+)")


class SelectorError(Exception):
    """It is no selector."""


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether all parts of it hold."""
    return all(_holds(part.strip(), labels) for part in _PARTS.split(selector) if part.strip())


def _holds(part: str, labels: Mapping[str, str]) -> bool:
    if found := _IN.fullmatch(part):
        values = {value.strip() for value in found[3].split(",")}
        return (labels.get(found[1]) in values) is (found[2] == "in")
    if found := _IS.fullmatch(part):
        return (labels.get(found[1]) == found[3]) is (found[2] != "!=")
    if found := _THERE.fullmatch(part):
        return (found[2] in labels) is not bool(found[1])
    raise SelectorError(part)
