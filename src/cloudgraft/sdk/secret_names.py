"""Which keys of somebody else's settings say that what stands below them is secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["may_name_a_secret", "secret_values"]

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


def secret_values(settings: object) -> Iterator[str]:
    """Every text below a key that says that it is secret."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if isinstance(value, Mapping) and _PLACES.search(str(key)):
                continue
            if key == "token" and isinstance(value, Mapping) and value.keys() <= _ABOUT_TOKENS:
                continue
            is_secret = _SECRET.search(str(key)) and not _HARMLESS.search(str(key))
            yield from _texts(value) if is_secret else secret_values(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from secret_values(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
