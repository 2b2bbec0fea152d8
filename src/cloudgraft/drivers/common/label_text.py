"""Encodes any text as a label or tag of a cloud that accepts few characters, and decodes it exactly."""

from __future__ import annotations

import base64
import binascii
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

# -- labels ------------------------------------------------------------------------------------------------------------
# Marks must come back unchanged (D9), and a group may have any id. A valid label is kept as it is. Any other text is
# written with a prefix: ``x--`` with single bytes as ``_2f``, which a person can still read, or ``b--`` in base32,
# which is shorter for other scripts. A text that fits in neither form is refused; nothing is ever cut.

_ESCAPED: Final = "x--"
_BASE32: Final = "b--"
_ESCAPE: Final = re.compile(rb"_([0-9a-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelText:
    """The label syntax of one cloud. Each label begins and ends with a letter or a digit, or is empty."""

    letters: str  # that it accepts; digits, "-" and "_" are always accepted
    others: str = ""  # that it also accepts, but neither first nor last
    longest: int = 63  # characters

    def encode(self, text: str, what: str) -> str:
        """Returns the label for a text; raises InvalidArgumentError that names ``what`` when there is none."""
        if self._is_plain(text):
            return text
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"{what} is no proper text, and cannot be kept as a label") from None
        for label in (_ESCAPED + self._escaped(data), _BASE32 + _base32(data)):
            if len(label) <= self.longest:
                return label
        raise InvalidArgumentError(
            f"{what} is too long to be kept as a label of this cloud, which takes {self.longest} characters: it has "
            f"{len(data)} bytes. Take a shorter one, of letters, digits and dashes"
        )

    def decode(self, label: str) -> str:
        """Returns the text of a label. A label not made by :meth:`encode`, such as one set by hand, is unchanged."""
        text = _decoded(label)
        return label if text is None or self._again(text) != label else text

    def _again(self, text: str) -> str | None:
        try:
            return self.encode(text, "it")
        except InvalidArgumentError:
            return None

    def takes(self, text: str) -> bool:
        """Returns whether the cloud accepts this text unchanged as a label."""
        ends = self.letters + string.digits
        is_fitting = len(text) <= self.longest and set(text) <= {*ends, "-", "_", *self.others}
        return not text or (is_fitting and text[0] in ends and text[-1] in ends)

    def _is_plain(self, text: str) -> bool:
        return self.takes(text) and not text.startswith((_ESCAPED, _BASE32))

    def _escaped(self, data: bytes) -> str:
        ends = (self.letters + string.digits).encode()
        last = len(data) - 1
        return "".join(
            chr(byte) if byte in ends or (byte == ord("-") and index != last) else f"_{byte:02x}"
            for index, byte in enumerate(data)
        )


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _decoded(label: str) -> str | None:
    marker, rest = label[: len(_ESCAPED)], label[len(_ESCAPED) :]
    try:
        if marker == _ESCAPED:
            return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), rest.encode()).decode()
        if marker == _BASE32:
            return base64.b32decode(rest.upper() + "=" * (-len(rest) % 8)).decode()
    except (binascii.Error, UnicodeError):
        return None
    return None


HETZNER: Final = LabelText(letters=string.ascii_letters, others=".")
GOOGLE: Final = LabelText(letters=string.ascii_lowercase)  # labels of Google's clouds: no capitals, no dots


# -- tags --------------------------------------------------------------------------------------------------------------
# Our marks, in the tags of clouds that accept few characters, or lists of words instead of pairs. Some of these clouds
# ignore case: text with capitals is encoded in lower case (``LabelText``).

_PART: Final = re.compile(r"([a-z0-9-]+)(?:_(\d+))?:(.*)", re.DOTALL)


def pairs(tags: Mapping[str, str], form: LabelText) -> dict[str, str]:
    """Encodes marks for clouds whose tags have keys and values."""
    return {key: form.encode(value, f"the tag {key}") for key, value in tags.items()}


def from_pairs(tags: Mapping[str, str], form: LabelText) -> dict[str, str]:
    """Back again."""
    return {str(key): form.decode(str(value)) for key, value in tags.items()}


def words(tags: Mapping[str, str], longest: int) -> list[str]:
    """Encodes marks for clouds whose tags are words: ``key:value``, or parts ``key_1:…``, ``key_2:…`` of a long one."""
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
    """Decodes marks from words. Leaves out tags of others, and marks of which a part is missing."""
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
