"""Files that are whole and on the disk when they are there at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["flush_directory", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is there in full or not at all, even after a loss of power, and that only its owner reads."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        flush_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush_directory(directory: Path) -> None:
    """Makes sure that names given to files in a directory are on the disk too."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
