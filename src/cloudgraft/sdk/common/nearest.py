"""Suggests the known word that is closest to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final

_LONGEST: Final = 100  # characters that are compared: what was given may be anything, and comparing takes its square


def nearest(given: str, known: Iterable[str], *, cutoff: float = 0.6, fold: Callable[[str], str] = str) -> str | None:
    """The known word that is most like the given one, as it is known; None when none is alike.

    Words are compared as ``fold`` makes them, such as ``str.lower``. ``cutoff`` is how much alike they must be: 1 is
    the same word, 0 is anything.
    """
    words = {fold(word): word for word in known}
    close = difflib.get_close_matches(fold(given)[:_LONGEST], words, n=1, cutoff=cutoff)
    return words[close[0]] if close else None
