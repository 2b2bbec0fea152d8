"""Checks the files and directories that options and machine settings name. Opens none of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgraft.sdk.common.files import stat_of
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.driver import Place
from cloudgraft.validation.document import Where
from cloudgraft.validation.explain import Key, item_type, keys_of, unwrap
from cloudgraft.validation.options import is_path
from cloudgraft.validation.problems import KeyPath, Problem, printable

_DIRECTORIES = ("_dir", "_directory")


def missing_paths(section_type: Any, section: Any, where: Where) -> Iterator[Problem]:
    """Problems of the paths in a section at ``where``, whose type is declared by its author.

    A path that is declared as a StateFile is written, so only its directory must exist. One that is declared as a
    MadePath need not exist. Any other must exist itself.
    """
    for named in named_paths(section_type, section):
        message, hint = _problem(where.base_dir / named.text, named.key)
        if message:
            yield where.document.problem((*where.path, *named.path), message, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPath:
    """A file or directory that values name."""

    path: KeyPath  # its place in the values
    key: Key | None  # the field that holds it, or the list or mapping of it
    text: str  # as it is written

    @property
    def is_directory(self) -> bool:
        """Whether the field says that it is a directory."""
        return self.key is not None and (
            self.key.place is Place.WORKING_DIRECTORY or self.key.field.endswith(_DIRECTORIES)
        )


def named_paths(annotation: Any, value: Any, path: KeyPath = (), key: Key | None = None) -> Iterator[NamedPath]:
    """Each path in the values, which are of a declared type."""
    kind = unwrap(annotation)
    if isinstance(value, str):
        if is_path(kind, key.field if key else "", value):
            yield NamedPath(path=path, key=key, text=value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from named_paths(item_type(kind), item, (*path, index), key)
    elif isinstance(value, dict):
        known, other = keys_of(kind), item_type(kind)
        for name, item in value.items():
            own = known.get(name)
            yield from named_paths(own.annotation if own else other, item, (*path, name), own or key)


def _problem(path: Path, key: Key | None) -> tuple[str, str]:
    """What is wrong with it, and what to do; empty when nothing is."""
    is_new = key is not None and key.place is Place.STATE_FILE
    is_directory = key is not None and (key.place is Place.WORKING_DIRECTORY or key.field.endswith(_DIRECTORIES))
    wanted = path.parent if is_new else path
    try:
        found = stat_of(wanted)
    except (OSError, ValueError) as error:
        return f"cannot be used: {shown(wanted)}: {getattr(error, 'strerror', None) or 'no path'}", ""
    if found is None and key is not None and key.place is Place.MADE:
        return "", ""
    if found is None:
        return f"no such {'directory' if is_new or is_directory else 'file'}: {shown(wanted)}", nearby(wanted)
    if stat.S_ISDIR(found.st_mode) != (is_new or is_directory) and key is not None and _says_what(key):
        return (f"is {'no' if is_directory else 'a'} directory: {shown(wanted)}"), ""
    if not os.access(wanted, os.R_OK):
        return f"cannot be read: {shown(wanted)}", "it must be readable for this user"
    return "", ""


def _says_what(key: Key) -> bool:
    """Whether the field's name or type says that it is a file, or a directory."""
    return key.place in {Place.STATE_FILE, Place.WORKING_DIRECTORY} or key.field.endswith(
        (*_DIRECTORIES, "_file", "_files")
    )


def nearby(path: Path) -> str:
    """Suggests a file with a similar name, else says what paths are relative to."""
    try:
        names = [other.name for other in path.parent.iterdir()]
    except OSError:
        names = []
    close = nearest(path.name, names)
    return f"did you mean {printable(close)}?" if close else "paths are relative to the directory of this file"


def shown(path: Path) -> str:
    """A path for people; of a long one, the end."""
    text = str(path)
    return printable(text) if len(text) <= 80 else "…" + printable(text[-79:])
