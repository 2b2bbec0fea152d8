"""Secrets that a file holds although they should be in one of their own: at least they are shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cloudgraft.sdk.secrecy import hide

__all__ = ["hide_secrets", "may_name_a_secret"]

# Wide: a value below such a key is not repeated in a message. Narrow: it is hidden wherever it turns up, so that a word
# that only might be one must not be among them.
_PERHAPS = re.compile(r"(?i)pass|token|secret|credential|private|key|pin$")
_SECRET = re.compile(r"(?i)passw|passphrase|token|secret|credential|(api|access|private|auth)[-_]?key")
_HARMLESS = re.compile(r"(?i)(file|path|dir|name|id|url|ref)$")  # tells where a secret is, or which
_PLACES = re.compile(r"Files$|^secretEnv$")  # a mapping of names, of secrets too, to where they are

_ABOUT_TOKENS = {"ttl", "groups"}  # of `join.token`, which says how tokens are made, and holds none


def may_name_a_secret(key: str) -> bool:
    """Whether what stands below such a key had better not be repeated."""
    return _PERHAPS.search(key) is not None


def hide_secrets(options: object) -> None:
    """Hides whatever is below a key that says that it is secret, in the options of somebody else's code."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            if isinstance(value, Mapping) and _PLACES.search(str(key)):
                continue
            if key == "token" and isinstance(value, Mapping) and value.keys() <= _ABOUT_TOKENS:
                continue
            if _SECRET.search(str(key)) and not _HARMLESS.search(str(key)):
                _hide_all(value)
            else:
                hide_secrets(value)
    elif isinstance(options, list):
        for value in options:
            hide_secrets(value)


def _hide_all(value: object) -> None:
    if isinstance(value, str):
        hide(value)
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            _hide_all(each)
