"""Asks what is at a path, with the same answer on every Python.

Until Python 3.13 ``Path.exists()`` and ``Path.is_dir()`` raise a bare PermissionError. Since 3.14 they say that there
is nothing, also about a file that this user merely may not see.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cloudgraft.sdk.errors import PreconditionError

__all__ = ["exists", "is_directory", "is_file", "stat_of"]


def exists(path: Path) -> bool:
    """Whether there is anything. Raises PreconditionError when this user cannot know."""
    return _found(path) is not None


def is_directory(path: Path) -> bool:
    """Whether there is a directory. Raises PreconditionError when this user cannot know."""
    found = _found(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: Path) -> bool:
    """Whether there is a regular file. Raises PreconditionError when this user cannot know."""
    found = _found(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def stat_of(path: Path) -> os.stat_result | None:
    """None when there is nothing. Raises OSError when this user cannot know, or when no file can have that name."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _found(path: Path) -> os.stat_result | None:
    try:
        return stat_of(path)
    except OSError as error:
        raise PreconditionError(f"cannot look at {path}: {error.strerror}; name another place") from error
