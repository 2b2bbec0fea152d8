"""What must be shown nowhere: no log, no error, no journal has it (law 9)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Final
from urllib.parse import quote

__all__ = ["SHORTEST_TOKEN", "hide", "redacted", "unhide"]

SHORTEST_TOKEN: Final = 16  # characters of what a caller proves itself with; what is shorter can be guessed
MASK: Final = "[secret]"
_SHORTEST: Final = 6  # characters; what is shorter is also part of many a harmless word
_lock = threading.Lock()
_times: Counter[str] = Counter()  # how often each was hidden
_hidden: tuple[str, ...] = ()  # longest first: one may be part of another


def hide(*values: str) -> None:
    """From now on these are shown as ``[secret]`` in every log line and error of this process.

    Options of a driver whose names say so (``password``, ``apiToken``, ...) are hidden by themselves. A driver that
    reads a secret from elsewhere hides it when it has it: libraries put what they sent into their exceptions. Values of
    fewer than six characters are not hidden.
    """
    _count(values, 1)


def unhide(*values: str) -> None:
    """Forgets what is no secret any more, such as a token that has expired: every secret costs time in every log line.

    What was hidden twice is forgotten when it was unhidden twice; what was never hidden is left alone.
    """
    _count(values, -1)


def _count(values: tuple[str, ...], step: int) -> None:
    global _hidden  # noqa: PLW0603 - there is one log per process, and so one list of what must not be in it
    with _lock:
        for form in (form for value in values if len(value) >= _SHORTEST for form in _forms(value)):
            if step > 0 or form in _times:
                _times[form] += step
            if form in _times and _times[form] <= 0:
                del _times[form]
        _hidden = tuple(sorted(_times, key=lambda value: (-len(value), value)))


def _forms(value: str) -> set[str]:
    """As it is, and as it looks in JSON, in a traceback and in a URL."""
    return {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="")}


def redacted(text: str) -> str:
    """The text without what was hidden."""
    for value in _hidden:
        text = text.replace(value, MASK)
    return text
