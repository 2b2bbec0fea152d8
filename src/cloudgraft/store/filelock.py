"""One process at a time. The kernel holds the lock, so it vanishes with the process, however that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from cloudgraft.store.journal import JournalBrokenError, JournalLockedError

__all__ = ["FileLock"]


class FileLock:
    """An exclusive lock on a file that says who holds it. The file stays: to remove it would let two hold "it"."""

    def __init__(self, path: Path, *, what: str) -> None:
        self._path = path
        self._what = what
        self._handle: int | None = None

    def acquire(self) -> None:
        """Takes the lock, or raises JournalLockedError with the name of whoever has it."""
        if self._handle is not None:
            return
        try:  # not through a link: what it holds is replaced
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalBrokenError(
                f"cannot open {self._path}: {error.strerror or error}; the journal's directory must exist and be "
                "writable for the user that cloudgraft runs as"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise self._refusal(error) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, _myself().encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Lets go of it. May be called twice."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)  # and with it goes the lock
            self._handle = None

    def _refusal(self, error: OSError) -> JournalLockedError | JournalBrokenError:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            return JournalBrokenError(
                f"cannot lock {self._path}: {error.strerror or error}; keep the journal on a file system with locks, "
                "best on a local disk"
            )
        return JournalLockedError(
            f"{self._what} is in use by {self._holder()}: stop that one first, or give this one a journal of its own"
        )

    def _holder(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
        except OSError:
            return "another process"


def _myself() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
