"""User data, which holds secrets, in words that come from outside: its lines are taken out of every message (law 9)."""

from __future__ import annotations

import base64
import json
from typing import Final

from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.secrecy import redacted

__all__ = ["CUT", "cut", "error_without", "without"]

CUT: Final = "…"  # where a message was cut
_SHORTEST: Final = 6  # characters of a line that is worth being hidden
_MASK: Final = "[user data]"


def cut(text: str, longest: int) -> str:
    """No more than so many characters of a text. It shows that it was cut, so that :func:`without` knows.

    What is hidden is taken out before: half a secret would not be known for one.
    """
    text = redacted(text)
    return text if len(text) <= longest else text[: longest - len(CUT)] + CUT


def without(text: str, user_data: str) -> str:
    """The text without lines of the user data: as they are, as JSON writes them, and as far as a cut has left them.

    And without all of it in base64, as many clouds are sent it.
    """
    lines = {line.strip() for line in user_data.splitlines()}
    forms = lines | {json.dumps(line, ensure_ascii=ascii_)[1:-1] for line in lines for ascii_ in (True, False)}
    forms.add(base64.b64encode(user_data.encode("utf-8", "replace")).decode())
    for line in sorted(forms, key=len, reverse=True):
        if len(line) >= _SHORTEST:
            text = _without_cut(text.replace(line, _MASK), line)
    return text


def error_without(error: CloudgraftError, user_data: str) -> CloudgraftError:
    """The same error, without lines of the user data in its message."""
    message = without(error.message, user_data)
    return error if message == error.message else type(error)(message, retry_after=error.retry_after)


def _without_cut(text: str, line: str) -> str:
    if CUT not in text:
        return text
    for length in range(min(len(line) - 1, len(text)), _SHORTEST - 1, -1):
        text = text.replace(line[:length] + CUT, _MASK + CUT).replace(CUT + line[-length:], CUT + _MASK)
    return text
