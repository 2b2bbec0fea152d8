"""Hides secrets: no log, no error and no journal shows them (law 9)."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from typing import Final
from urllib.parse import quote

__all__ = ["SHORTEST_TOKEN", "hide", "redacted", "unhide"]

SHORTEST_TOKEN: Final = 16  # characters of what a caller proves itself with; what is shorter can be guessed
MASK: Final = "[secret]"
_SHORTEST: Final = 4  # characters; what is shorter is guessed in no time, and is part of every other line
_LONG: Final = 6  # characters from which on it is hidden also within a word
_lock = threading.Lock()
_times: Counter[tuple[str, bool]] = Counter()  # how often each was hidden, and whether within words too
_hidden: tuple[str, ...] = ()  # within words too; longest first: one may be part of another
_words: re.Pattern[str] | None = None  # the others


def hide(*values: str) -> None:
    """From now on these are shown as ``[secret]`` in every log line and error of this process.

    Options of a driver whose names say so (``password``, ``apiToken``, ...) are hidden by themselves. A driver that
    reads a secret from elsewhere hides it when it has it: libraries put what they sent into their exceptions.

    A value of four or five characters is hidden where it stands alone, and not within a longer word: it is part of many
    a harmless one. Values of fewer than four are not hidden: so short a secret protects nothing, and a log without it
    would show by its gaps what it is.
    """
    _count(values, 1)


def unhide(*values: str) -> None:
    """Forgets what is no secret any more, such as a token that has expired: every secret costs time in every log line.

    What was hidden twice is forgotten when it was unhidden twice; what was never hidden is left alone.
    """
    _count(values, -1)


def _count(values: tuple[str, ...], step: int) -> None:
    global _hidden, _words  # noqa: PLW0603 - there is one log per process, and so one list of what must not be in it
    with _lock:
        for value in values:
            if len(value) < _SHORTEST:
                continue
            for form in _forms(value):
                key = (form, len(value) >= _LONG)
                if step > 0 or key in _times:
                    _times[key] += step
                if key in _times and _times[key] <= 0:
                    del _times[key]
        longest_first = sorted(_times, key=lambda key: (-len(key[0]), key))
        _hidden = tuple(form for form, is_long in longest_first if is_long)
        alone = [_alone(form) for form, is_long in longest_first if not is_long]
        _words = re.compile("|".join(alone)) if alone else None


def _alone(form: str) -> str:
    """Matches it where it is no part of a longer word."""
    begin = r"(?<!\w)" if re.match(r"\w", form) else ""
    end = r"(?!\w)" if re.search(r"\w\Z", form) else ""
    return f"{begin}{re.escape(form)}{end}"


def _forms(value: str) -> set[str]:
    """As it is, and as it looks in JSON, in a traceback and in a URL."""
    return {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="")}


def redacted(text: str) -> str:
    """The text without what was hidden."""
    for value in _hidden:
        text = text.replace(value, MASK)
    return text if _words is None else _words.sub(MASK, text)
