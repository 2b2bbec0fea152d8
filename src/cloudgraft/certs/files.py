"""Writes certificates and keys atomically, and keys readable by their owner only.

Every file is written in full under another name in the same directory, flushed to the disk, and then renamed. Two
files cannot be renamed in one step, so for an instant a reader may find the new key beside the old certificate. That
instant is as short as two renames, because everything that can fail or take time is done before the first. The order
is the caller's: **keys first, certificates last**, so that a process that waits for a certificate to change finds the
key in place already. A reader that finds a pair that does not match keeps the old one and reads again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudgraft.sdk.errors import AlreadyExistsError, ConflictError, PreconditionError

_SUFFIX = ".cloudgraft-new"  # an interrupted run may leave such files; the next one removes them


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written. A secret one is readable by its owner only."""

    path: Path
    content: bytes = field(repr=False)
    secret: bool


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the directory for one writer at a time; a second one is refused at once. Makes it if it is not there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _failed(directory, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"another process is writing certificates in {directory}: try again") from None
        for left_over in directory.glob(f".*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                left_over.unlink()
        yield
    finally:
        os.close(handle)  # and with it goes the lock


def create_files(files: Sequence[NewFile]) -> None:
    """Writes files that do not exist yet: all of them, or none. Call it with the directory locked."""
    existing = [file.path for file in files if os.path.lexists(file.path)]
    if existing:
        names = ", ".join(str(path) for path in existing)
        raise AlreadyExistsError(f"{names}: will not be overwritten; use `certs renew`, or another directory")
    _write(files)


def replace_files(files: Sequence[NewFile]) -> None:
    """Replaces files in the order given; owner and mode stay as they are. Call it with the directory locked."""
    _write([NewFile(path=Path(os.path.realpath(f.path)), content=f.content, secret=f.secret) for f in files])


def _write(files: Sequence[NewFile]) -> None:
    staged: list[tuple[Path, Path]] = []
    try:
        for file in files:
            temporary = file.path.with_name(f".{file.path.name}.{secrets.token_hex(4)}{_SUFFIX}")
            staged.append((temporary, file.path))
            _stage(file, temporary)
        for temporary, path in staged:
            temporary.replace(path)
        for directory in {path.parent for _, path in staged}:
            _flush(directory)
    except OSError as error:
        raise _failed(Path(error.filename or files[0].path), error) from error
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _stage(file: NewFile, temporary: Path) -> None:
    """Writes the content under its temporary name, with the owner and mode that the final file is to have."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file.secret else 0o644)
    with os.fdopen(handle, "wb") as stream:
        with contextlib.suppress(FileNotFoundError):
            old = file.path.stat()
            new = os.fstat(stream.fileno())
            # A server that runs as another user must still be able to read its key after root renewed it.
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(stream.fileno(), old.st_uid, old.st_gid)
            mode = stat.S_IMODE(old.st_mode)
            os.fchmod(stream.fileno(), mode & 0o770 if file.secret else mode)
        stream.write(file.content)
        stream.flush()
        os.fsync(stream.fileno())


def _flush(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(path: Path, error: OSError) -> PreconditionError:
    return PreconditionError(
        f"cannot write {path}: {error.strerror or error}; nothing that was there before has been removed"
    )
