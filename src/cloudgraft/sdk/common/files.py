"""Checks what exists at a path, with the same result on every Python version.

Until Python 3.13 ``Path.exists()`` and ``Path.is_dir()`` raise a bare PermissionError. Since 3.14 they return False,
also for a file that exists but that this user may not see.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cloudgraft.sdk.errors import PreconditionError


def exists(path: Path) -> bool:
    """Returns whether anything exists there. Raises PreconditionError when this user may not look."""
    return _found(path) is not None


def is_directory(path: Path) -> bool:
    """Returns whether a directory exists there. Raises PreconditionError when this user may not look."""
    found = _found(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: Path) -> bool:
    """Returns whether a regular file exists there. Raises PreconditionError when this user may not look."""
    found = _found(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def stat_of(path: Path) -> os.stat_result | None:
    """Returns None when nothing exists. Raises OSError when this user may not look, or when the name is impossible."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _found(path: Path) -> os.stat_result | None:
    try:
        return stat_of(path)
    except OSError as error:
        raise PreconditionError(f"cannot look at {path}: {error.strerror}; name another place") from error
