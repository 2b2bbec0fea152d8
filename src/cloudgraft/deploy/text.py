"""Writes values as YAML, with a comment that says why each is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from cloudgraft.validation.problems import KeyPath, printable

_LONGEST_REASON: Final = 300
_WIDTH: Final = 120
# Breaks of lines that YAML has besides \n: in a block, they would not come back as they are.
_BREAKS: Final = re.compile("[\r\x85\u2028\u2029\ufeff]")
# Text that no YAML takes for anything else. Helm reads by other rules than PyYAML writes by: 1e3 is a number to it, and
# y a boolean.
_PLAIN: Final = re.compile(r"[A-Za-z/][\w ./@-]*(?::[\w./@-]+)*", re.ASCII)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


class _FlowDumper(yaml.SafeDumper):
    """Writes text on one line, whatever is in it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _line_of_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_FlowDumper.add_representer(str, _line_of_text)


def dumped(content: Mapping[str, Any]) -> str:
    """The content of a file, in its order."""
    text = _dumped(content, allow_unicode=True)
    return _dumped(content, allow_unicode=False) if _BREAKS.search(text) else text


def _dumped(content: Any, *, allow_unicode: bool) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=allow_unicode)
    return text


def commented(values: Mapping[str, Any], reasons: Mapping[KeyPath, str], head: list[str]) -> str:
    """The values, each with its reason above it. Text of several lines becomes a block."""
    lines = [f"# {printable(line, _LONGEST_REASON)}".rstrip() for line in head]
    return "\n".join([*lines, *_mapping(values, reasons, (), 0)]) + "\n"


def _mapping(values: Mapping[str, Any], reasons: Mapping[KeyPath, str], path: KeyPath, indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, value in values.items():
        here = (*path, key)
        name, why = f"{pad}{_flow(key)}:", _comment(reasons, here)
        if isinstance(value, Mapping) and value:
            yield _line(name, why)
            yield from _mapping(value, reasons, here, indent + 2)
        elif isinstance(value, list) and value:
            yield _line(name, why)
            for index, each in enumerate(value):
                yield _line(f"{pad}  - {_flow(each)}", _comment(reasons, (*here, index)))
        elif isinstance(value, str) and value.endswith("\n") and not _BREAKS.search(value):
            yield _line(f"{name} |", why)
            yield from (f"{pad}  {line}" if line else "" for line in value[:-1].split("\n"))
        else:
            yield _line(f"{name} {_flow(value)}", why)


def _comment(reasons: Mapping[KeyPath, str], path: KeyPath) -> str:
    return f" # {printable(reasons[path], _LONGEST_REASON)}" if path in reasons else ""


def _line(text: str, comment: str) -> str:
    """A line with its comment behind it, or above it where that would be too long."""
    if comment and len(text) + len(comment) > _WIDTH:
        pad = " " * (len(text) - len(text.lstrip()))
        return f"{pad}{comment.lstrip()}\n{text}"
    return text + comment


def _flow(value: object) -> str:
    """A value on one line."""
    text: str = yaml.dump(value, Dumper=_FlowDumper, default_flow_style=True, sort_keys=False, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...").strip()
