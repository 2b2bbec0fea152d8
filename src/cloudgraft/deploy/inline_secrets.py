"""Finds texts of a configuration that look like secrets, by their keys and by what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cloudgraft.sdk.secrecy import secrets_in
from cloudgraft.validation.problems import KeyPath

_SAYS: Final = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@"  # a password in a URL
    r"|\b(?:Bearer|Basic)\s+\S{3,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?:^|\s)--?(?:password|passwd|pass|token|secret|api-?key)[= ]\S"
    r"|\bhooks\.slack\.com/services/",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(r"--?(?:password|passwd|pass|token|secret|api-?key)", re.IGNORECASE)  # with the next word
_VARIABLE: Final = re.compile(r"(?:^|_)(?:PASS|PASSWORD|PAT|AUTH|DSN|CREDENTIALS?)$|PASS$")


def inline_secrets(content: Mapping[str, Any]) -> list[KeyPath]:
    """The places of all that look like one, each once. What is not found may be one all the same."""
    return list(dict.fromkeys([path for path, _ in secrets_in(content)] + list(_said(content, ()))))


def _said(value: object, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, str) and _SAYS.search(value):
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            here = (*path, key)
            is_variable = len(path) > 0 and path[-1] == "env" and _VARIABLE.search(str(key)) is not None
            yield from [here] if is_variable else _said(each, here)
    elif isinstance(value, list):
        yield from _in_words(value, path)


def _in_words(words: Sequence[object], path: KeyPath) -> Iterator[KeyPath]:
    for index, word in enumerate(words):
        before = words[index - 1] if index else None
        if isinstance(before, str) and isinstance(word, str) and _OPTION.fullmatch(before):
            yield (*path, index)
        else:
            yield from _said(word, (*path, index))
