"""Reading files of objects and of secrets. Nothing that is told of them repeats what they hold."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cloudgraft.config.document import read_yaml
from cloudgraft.config.problems import ConfigError, Problem
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["FileStamp", "listed", "objects_in", "read_small", "stamp_of"]

FileStamp = tuple[int, int, int]
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 2000
_BETWEEN: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


def stamp_of(path: Path) -> FileStamp | None:
    """Something that changes when a file does, links followed; None for what is no plain file.

    The inode too: a replacement by rename, or of the link above it, may keep time and size.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def listed(directory: Path, suffixes: frozenset[str] = frozenset()) -> dict[str, FileStamp]:
    """The files of a directory by name, without hidden ones. Raises OSError, InvalidArgumentError."""
    found: dict[str, FileStamp] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(".") or (suffixes and Path(entry.name).suffix not in suffixes):
                continue
            stamp = stamp_of(Path(entry.path))
            if stamp is not None:
                found[entry.name] = stamp
            if len(found) > _MOST_FILES:
                raise InvalidArgumentError(f"there are more than {_MOST_FILES} files in {directory}")
    return dict(sorted(found.items()))


def read_small(path: Path) -> bytes:
    """A file's content. Raises InvalidArgumentError when it cannot be read or is far too large."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidArgumentError(f"{path}: is larger than {_MOST_BYTES >> 20} MiB")
    return content


def objects_in(path: Path) -> Iterator[Mapping[str, object]]:
    """The objects of a YAML or JSON file, those of lists one by one. Raises InvalidArgumentError."""
    try:
        text = read_small(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{path}: is not UTF-8") from None
    for content in [_from_json(text, path)] if path.suffix == ".json" else _from_yaml(text, path):
        yield from _flat(content, path)


def _flat(content: object, path: Path) -> Iterator[Mapping[str, object]]:
    if not isinstance(content, Mapping):
        raise InvalidArgumentError(f"{path}: must hold objects, with kind, apiVersion and metadata")
    items = content.get("items")
    if content.get("kind") == "List" and isinstance(items, list):
        for item in items:
            yield from _flat(item, path)
    else:
        yield content


def _from_json(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"{path}:{error.lineno}:{error.colno}: not valid JSON") from None
    except RecursionError:
        raise InvalidArgumentError(f"{path}: is nested too deep") from None


def _from_yaml(text: str, path: Path) -> Iterator[object]:
    begin = 0
    for end in [*(match.start() for match in _BETWEEN.finditer(text)), len(text)]:
        part = _BETWEEN.sub("   ", text[begin:end], count=1)
        try:
            document = read_yaml("\n" * text.count("\n", 0, begin) + part, str(path))  # so that lines are the file's
        except ConfigError as error:
            raise InvalidArgumentError(_told(error.problems[0])) from None
        if document.problems:
            raise InvalidArgumentError(_told(document.problems[0]))
        if document.root.value is not None:
            yield document.root.value
        begin = end


def _told(problem: Problem) -> str:
    """Without YAML's own words, which may quote a value."""
    message = "not valid YAML" if problem.message.startswith(("not valid YAML", "the tag")) else problem.message
    return f"{problem.file}:{problem.line}:{problem.column}: {message}"
