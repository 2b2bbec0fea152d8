"""Parses documents that somebody else wrote, within limits.

A few hundred bytes of YAML with aliases or merge keys expand to gigabytes, and a few digits to numbers that take
minutes. So a foreign document has a largest size and depth, no aliases, no merge keys, no tags, and no long numbers.
Parsing still takes as long as its size needs: call :func:`parse_yaml` in a thread where an event loop runs.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from cloudgraft.sdk.errors import InvalidArgumentError

MOST_YAML_BYTES: Final = 64 * 1024  # the worst of that size is read in about a second
_MOST_DEPTH: Final = 32
# A small object takes 200 bytes of memory for 6 in the text, so this many take 300 MB. A list of 100,000 machines has
# about a million values.
_MOST_JSON_VALUES: Final = 1_500_000
_TAG: Final = "tag:yaml.org,2002:"


class ForeignDocumentError(InvalidArgumentError):
    """The document is not used. The message quotes nothing of it: a line may hold a secret."""


def parse_yaml(text: str, *, most_bytes: int = MOST_YAML_BYTES, most_depth: int = _MOST_DEPTH) -> Any:
    """The first document of the text; None when there is none. Raises ForeignDocumentError.

    Mappings, lists, texts, booleans, nulls and whole numbers of at most 18 digits; all else is text.
    """
    if len(text) > most_bytes or len(text.encode("utf-8", "replace")) > most_bytes:
        raise ForeignDocumentError(f"it has more than {most_bytes} bytes")
    try:
        loader = _ForeignLoader(text, most_depth)
        try:
            node = loader.get_node() if loader.check_node() else None
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except ForeignDocumentError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, KeyError) as error:
        # Without its own message, which quotes the line: that may be the one with the token.
        raise ForeignDocumentError("it is not valid YAML") from error
    except RecursionError:  # without its own trace, which is as deep
        raise ForeignDocumentError("it is nested too deeply") from None


def parse_json(data: bytes | str, *, most_bytes: int, most_values: int = _MOST_JSON_VALUES, **options: Any) -> Any:
    """One JSON value; ``options`` are those of :func:`json.loads`. Raises ForeignDocumentError for one beyond limits.

    What is not JSON raises as :func:`json.loads` does: ValueError, or RecursionError when it is nested too deeply.
    """
    if len(data) > most_bytes:
        raise ForeignDocumentError(f"it has more than {most_bytes} bytes")
    # Every value but the first comes after one of these. Commas in texts count too, which does no harm.
    text = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > most_values:
        raise ForeignDocumentError(f"it has more than {most_values} values")
    return json.loads(data, **options)


class _ForeignLoader(yaml.SafeLoader):
    """Reads events one by one, and refuses what makes a document larger than it looks."""

    yaml_implicit_resolvers: Final = {}  # type: ignore[misc]  # of this class alone; filled below

    def __init__(self, text: str, most_depth: int) -> None:
        super().__init__(text)
        self._most_depth = most_depth
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ForeignDocumentError("it has anchors or aliases (& or *): write out what they stand for")
        if getattr(event, "tag", None) is not None:
            raise ForeignDocumentError("it has tags (!): leave them out")
        if self._depth >= self._most_depth:
            raise ForeignDocumentError(f"it is nested deeper than {self._most_depth} levels")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """In the place of merging."""
        if any(isinstance(key, yaml.ScalarNode) and key.value == "<<" for key, _ in node.value):
            raise ForeignDocumentError("it has merge keys (<<): write out what they stand for")


for _kind, _form, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", "-+0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _ForeignLoader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_form})\Z"), list(_first))
