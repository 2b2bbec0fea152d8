"""Our marks, in the tags of clouds that take few characters, or lists of words instead of pairs.

Some of these clouds do not tell capitals from small letters: what has others is written in small ones (``label_text``).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Final

from cloudgraft.drivers.common.label_text import LabelText
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["from_pairs", "from_words", "pairs", "words"]

_PART: Final = re.compile(r"([a-z0-9-]+)(?:_(\d+))?:(.*)", re.DOTALL)


def pairs(tags: Mapping[str, str], form: LabelText) -> dict[str, str]:
    """For clouds whose tags have keys and values."""
    return {key: form.encode(value, f"the tag {key}") for key, value in tags.items()}


def from_pairs(tags: Mapping[str, str], form: LabelText) -> dict[str, str]:
    """Back again."""
    return {str(key): form.decode(str(value)) for key, value in tags.items()}


def words(tags: Mapping[str, str], longest: int) -> list[str]:
    """For clouds whose tags are words: ``key:value``, and in parts ``key_1:…``, ``key_2:…`` when that is too long."""
    found = []
    for key, value in tags.items():
        if not re.fullmatch(r"[a-z0-9-]+", key):
            raise InvalidArgumentError(
                f"the tag {key} cannot be kept by this cloud: small letters, digits, dashes only"
            )
        text = _FORM.encode(value, f"the tag {key}")
        room = longest - len(key) - 4
        if len(key) + 1 + len(text) <= longest:
            found.append(f"{key}:{text}")
        else:
            found += [f"{key}_{1 + at // room}:{text[at : at + room]}" for at in range(0, len(text), room)]
    return found


def from_words(tags: Iterable[str]) -> dict[str, str]:
    """Back again. What others have tagged is left out, and so is what lost a part."""
    parts: dict[str, dict[int, str]] = {}
    for tag in tags:
        if found := _PART.fullmatch(str(tag)):
            parts.setdefault(found[1], {})[int(found[2] or 1)] = found[3]
    return {
        key: _FORM.decode("".join(text for _, text in sorted(texts.items())))
        for key, texts in parts.items()
        if sorted(texts) == list(range(1, len(texts) + 1))
    }


_FORM: Final = LabelText(letters=string.ascii_lowercase, longest=240)
