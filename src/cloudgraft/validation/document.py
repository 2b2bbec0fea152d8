"""Reads a YAML file as plain values, with the line and column of each.

PyYAML's nodes know their line and column; pydantic's errors know a key path. A :class:`Document` brings the two
together. It also refuses what makes YAML dangerous or surprising: duplicate keys, tags, aliases that contain
themselves, and aliases that expand into more than a person would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cloudgraft.validation.problems import ConfigError, KeyPath, Problem, dotted, printable

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_VALUES = 50_000
_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")}
_UNUSUAL = {f"{_TAG}timestamp", f"{_TAG}value"}  # a date and a lone "=" are text to us
COMMAND_LINE = "command line"


@dataclass(slots=True)
class Entry:
    """A value in the file and its place. ``raw`` is the text of a value without quotes, before YAML reads it."""

    value: Any
    line: int
    column: int
    raw: str | None = None
    children: dict[str | int, Entry] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)  # the place of each key of a mapping


@dataclass(slots=True, kw_only=True)
class Document:
    """A file's content. ``problems`` are those of the YAML itself; the rest of the file is checked all the same.

    ``unread`` are the paths of values that could not be read: no other check reports them.
    """

    name: str
    root: Entry
    problems: list[Problem] = field(default_factory=list)
    unread: set[KeyPath] = field(default_factory=set)
    overridden: set[KeyPath] = field(default_factory=set)

    @classmethod
    def without_file(cls, name: str = "configuration") -> Document:
        """A document for values that come from a program and have no place in a file."""
        return cls(name=name, root=Entry({}, 0, 0))

    def override(self, path: KeyPath, value: object) -> None:
        """Sets a value from the command line; it wins over the one in the file."""
        target = self.root.value
        for part in path[:-1]:
            if not isinstance(target, dict):
                return  # the file is wrong there, and validation reports it
            target = target.setdefault(part, {})
        if isinstance(target, dict):
            target[path[-1]] = value
            self.overridden.add(path)

    def find(self, path: KeyPath) -> Entry | None:
        """The entry at a path, or None when the file has nothing there."""
        entry: Entry | None = self.root
        for part in path:
            entry = entry.children.get(part) if entry else None
        return None if any(path[: len(own)] == own for own in self.overridden) else entry

    def problem(self, path: KeyPath, message: str, suggestion: str = "", *, at_key: bool = False) -> Problem:
        """A problem at a path, with its place, or that of the nearest parent that is in the file."""
        key = dotted(path)
        if any(path[: len(own)] == own for own in self.overridden):
            return Problem(file=COMMAND_LINE, key=key, message=message, suggestion=suggestion)
        line, column = self._place(path, at_key=at_key)
        return Problem(file=self.name, line=line, column=column, key=key, message=message, suggestion=suggestion)

    def _place(self, path: KeyPath, *, at_key: bool) -> tuple[int, int]:
        entry = self.root
        for index, part in enumerate(path):
            if at_key and index == len(path) - 1 and part in entry.keys:
                return entry.keys[str(part)]
            if part not in entry.children:
                break
            entry = entry.children[part]
        return entry.line, entry.column


class _Loader(yaml.SafeLoader):
    """Composes nodes up to a depth and a number, so that a file cannot make loading slow."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and the form are PyYAML's
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNUSUAL]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        too_deep, too_many = self._depth > MAX_DEPTH, self._nodes > MAX_VALUES
        if too_deep or too_many:
            message = f"nested more than {MAX_DEPTH} levels deep" if too_deep else f"more than {MAX_VALUES} values"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise yaml.composer.ComposerError(None, None, message, mark)
        self._depth += 1
        self._nodes += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self._depth -= 1


def read_file(path: Path, example: str = "") -> str:
    """The text of a file. Raises ConfigError when it cannot be read; ``example`` is the smallest such file."""
    name = str(path)
    try:
        if path.is_dir():
            raise ConfigError([Problem(file=name, message="is a directory", suggestion="name the file in it")])
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(file=name, message="no such file", suggestion=example)]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ConfigError([Problem(file=name, message=f"cannot be read: {reason}")]) from None
    if len(content) > MAX_BYTES:
        raise ConfigError([Problem(file=name, message=f"is larger than {MAX_BYTES >> 20} MiB")])
    return decode(content, name)


def decode(content: bytes, name: str) -> str:
    """The text of a file's content; raises ConfigError with the place of what is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(
            file=name, line=line, column=column, message="is not UTF-8", suggestion="save the file as UTF-8"
        )
        raise ConfigError([problem]) from None


def read_mapping(path: Path, example: str) -> tuple[Document, dict[str, Any]]:
    """A YAML file that holds keys and values, such as ``example``. Raises ConfigError with all problems."""
    document = read_yaml(read_file(path), str(path))
    if document.problems:
        raise ConfigError(document.problems)
    data = document.root.value
    if not isinstance(data, dict):
        raise ConfigError([document.problem((), "must hold keys and values", f"for example {example}")])
    return document, data


def read_yaml(text: str, name: str) -> Document:
    """Reads a file's text. Raises ConfigError when it is no YAML at all; smaller problems are in the document."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError([_syntax_problem(error, text, name)]) from None
    document = Document(name=name, root=Entry(None, 1, 1))
    if node is not None:
        document.root = _Builder(loader, document).entry(node, ())
    return document


class _Builder:
    """Turns nodes into entries, and collects problems."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._count = 0
        self._reported: set[tuple[int, int, str]] = set()
        self._open: set[int] = set()  # the nodes around the current one, to find an alias that contains itself

    def entry(self, node: yaml.Node, path: KeyPath) -> Entry:
        entry = Entry(None, node.start_mark.line + 1, node.start_mark.column + 1)
        self._count += 1
        if self._count > MAX_VALUES:
            problem = self._problem(node, path, f"the file expands to more than {MAX_VALUES} values")
            raise ConfigError([*self._document.problems, problem])
        if id(node) in self._open:
            self._report_unread(node, path, "this alias contains itself")
            return entry
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            self._fill_mapping(entry, node, path)
        elif isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            entry.children = {i: self.entry(child, (*path, i)) for i, child in enumerate(node.value)}
            entry.value = [child.value for child in entry.children.values()]
        elif isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            self._fill_scalar(entry, node, path)
        else:
            self._report_unread(node, path, f"the tag {printable(node.tag)} cannot be used here", "leave it out")
        self._open.discard(id(node))
        return entry

    def _fill_mapping(self, entry: Entry, node: yaml.MappingNode, path: KeyPath) -> None:
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged.append(value_node)
            elif not isinstance(key_node, yaml.ScalarNode) or not _is_text(key_node.value):
                self._report(key_node, path, "a key must be plain text", "write key: value")
            elif key_node.value in entry.keys:
                line = entry.keys[key_node.value][0]
                message = f"this key is there twice, first in line {line}"
                self._report(key_node, (*path, key_node.value), message, "remove one of the two")
            else:
                # A key is text, whatever YAML makes of it: `on` and `1` are names here.
                entry.keys[key_node.value] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                entry.children[key_node.value] = self.entry(value_node, (*path, key_node.value))
        for value_node in merged:
            self._merge(entry, value_node, path)
        entry.value = {key: child.value for key, child in entry.children.items()}

    def _merge(self, entry: Entry, node: yaml.Node, path: KeyPath) -> None:
        """Merges `<<: *base`: keys that are missing here are taken from there."""
        many = isinstance(node, yaml.SequenceNode)
        for part in node.value if many else [node]:
            base = self.entry(part, path)
            if not isinstance(base.value, dict):
                self._report(part, path, "only a mapping can be merged with <<")
                continue
            for key, child in base.children.items():
                if key not in entry.children:
                    entry.children[key] = child
                    entry.keys[str(key)] = base.keys[str(key)]

    def _fill_scalar(self, entry: Entry, node: yaml.ScalarNode, path: KeyPath) -> None:
        entry.raw = node.value if node.style is None else None
        try:
            entry.value = self._loader.construct_object(node)
            is_readable = _is_text(node.value)
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            is_readable = False
        if not is_readable:
            entry.value = None
            self._report_unread(node, path, "this value cannot be read", "put text into quotes")

    def _report_unread(self, node: yaml.Node, path: KeyPath, message: str, suggestion: str = "") -> None:
        self._document.unread.add(path)
        self._report(node, path, message, suggestion)

    def _report(self, node: yaml.Node, path: KeyPath, message: str, suggestion: str = "") -> None:
        problem = self._problem(node, path, message, suggestion)
        place = (problem.line, problem.column, message)
        if place not in self._reported:  # an alias leads to the same place again
            self._reported.add(place)
            self._document.problems.append(problem)

    def _problem(self, node: yaml.Node, path: KeyPath, message: str, suggestion: str = "") -> Problem:
        return Problem(
            file=self._document.name,
            line=node.start_mark.line + 1,
            column=node.start_mark.column + 1,
            key=dotted(path),
            message=message,
            suggestion=suggestion,
        )


def _is_text(value: str) -> bool:
    """False for half a surrogate pair, which an escape may produce and which no terminal or file accepts."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


_HINTS: Mapping[str, str] = {
    "'\\t'": "indent with spaces, not with tabs",
    "mapping values are not allowed": "is the line indented too far, or a quote missing?",
    "could not find expected ':'": "write key: value",
    "expected <block end>": "is the line indented differently from its neighbours?",
    "expected a single document": "leave out the line with ---",
    "undefined alias": "define it before with &name, or put the text into quotes",
    "that cannot start any token": "put the text into quotes",
    "while scanning a quoted scalar": "is the closing quote missing?",
}


def _syntax_problem(error: Exception, text: str, name: str) -> Problem:
    line, column, parts = 1, 1, ["it cannot be read"]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        parts = [part for part in (error.context, error.problem) if part]
    elif isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        parts = [f"the character #x{ord(text[error.position]):04x} is not allowed"]
    message = printable(", ".join(parts), 200)
    return Problem(
        file=name, line=line, column=column, message=f"not valid YAML: {message}", suggestion=_hint(", ".join(parts))
    )


def _hint(message: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in message), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in a configuration file, so that a problem found later is reported like all others."""

    document: Document
    base_dir: Path
    path: KeyPath

    def below(self, *path: str | int) -> Where:
        """A place within this one."""
        return Where(document=self.document, base_dir=self.base_dir, path=(*self.path, *path))

    def error(self, message: str, suggestion: str = "") -> ConfigError:
        """The error of a problem at this place."""
        return ConfigError([self.document.problem(self.path, message, suggestion)])
