"""Any text as a label of a cloud that takes few characters, and back again, byte for byte.

Marks must come back as they were (D9), and a group may have any id. What a label can hold is kept as it is. Everything
else is written with a marker in front: ``x--`` with single bytes as ``_2f``, which a person can still read, or ``b--``
in base32, which is shorter for other scripts. What fits in neither way is refused; nothing is ever cut.
"""

from __future__ import annotations

import base64
import binascii
import re
import string
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["GOOGLE", "HETZNER", "LabelText"]

_ESCAPED: Final = "x--"
_BASE32: Final = "b--"
_ESCAPE: Final = re.compile(rb"_([0-9a-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelText:
    """How one cloud's labels are written. Each begins and ends with a letter or a digit, or is empty."""

    letters: str  # that it takes; digits, "-" and "_" it takes in any case
    others: str = ""  # that it takes too, but neither first nor last
    longest: int = 63  # characters

    def encode(self, text: str, what: str) -> str:
        """The label for a text; raises InvalidArgumentError that names ``what``, when there is none."""
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
        """The text of a label. One that :meth:`encode` has not made, such as one set by hand, comes back as it is."""
        text = _decoded(label)
        return label if text is None or self._again(text) != label else text

    def _again(self, text: str) -> str | None:
        try:
            return self.encode(text, "it")
        except InvalidArgumentError:
            return None

    def takes(self, text: str) -> bool:
        """Whether the cloud takes this text as a label, as it is."""
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
