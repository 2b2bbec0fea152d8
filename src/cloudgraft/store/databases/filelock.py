"""Lets one process at a time use a file.

The kernel holds the lock, so it ends with the process, however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from cloudgraft.store.journal import JournalBrokenError, JournalLockedError

_HELD: Final = (errno.EAGAIN, errno.EACCES)
_MAKING_SECONDS: Final = 30.0  # a database is made in milliseconds, but an old one is copied first


class FileLock:
    """A lock on a file that says who holds it. The file stays: to remove it would let two hold "it".

    ``is_shared``: the first process holds it alone until :meth:`share`; then others hold it too.
    """

    def __init__(self, path: Path, *, what: str, noun: str = "journal", is_shared: bool = False) -> None:
        self._path = path
        self._what = what
        self._noun = noun
        self._is_shared = is_shared
        self._is_alone = False
        self._handle: int | None = None

    def acquire(self) -> None:
        """Takes the lock, or raises JournalLockedError with the name of its holder.

        A shared one is waited for while another process makes the database.
        """
        if self._handle is not None:
            return
        try:  # not through a link: what it holds is replaced
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalBrokenError(
                f"cannot open {self._path}: {error.strerror or error}; the {self._noun}'s directory must exist and be "
                "writable for the user that cloudgraft runs as"
            ) from error
        try:
            self._is_alone = self._lock(handle)
        except OSError as error:
            os.close(handle)
            raise self._refusal(error) from None
        if self._is_alone:
            try:
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{myself()}\n".encode(), 0)
            except OSError as error:
                os.close(handle)
                raise JournalBrokenError(
                    f"cannot write {self._path}: {error.strerror or error}; make room on its disk, and start again"
                ) from error
        self._handle = handle

    def _lock(self, handle: int) -> bool:
        """True: we hold it alone. False: with others."""
        deadline = time.monotonic() + (_MAKING_SECONDS if self._is_shared else 0.0)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if not self._is_shared or error.errno not in _HELD:
                    raise
            else:
                return True
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _HELD or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return False

    def insist(self) -> None:
        """Raises JournalLockedError unless we hold it alone: for changes that no other process may see half done."""
        if self._is_alone or self._handle is None:
            return
        try:  # the process that held it alone when we came may have ended
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalLockedError(
                f"{self._what} is in use by {self._shown_holder()}: stop all that use it first"
            ) from None
        self._is_alone = True

    def share(self) -> None:
        """Lets others hold it too, if it is one to be shared."""
        if self._is_shared and self._is_alone and self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            self._is_alone = False

    def release(self) -> None:
        """Releases the lock. May be called twice."""
        if self._handle is not None:
            if self._is_alone:
                os.ftruncate(self._handle, 0)
            os.close(self._handle)  # and with it goes the lock
            self._handle, self._is_alone = None, False

    def _refusal(self, error: OSError) -> JournalLockedError | JournalBrokenError:
        if error.errno not in _HELD:
            return JournalBrokenError(
                f"cannot lock {self._path}: {error.strerror or error}; keep the {self._noun} on a file system with "
                "locks, best on a local disk"
            )
        return JournalLockedError(
            f"{self._what} is in use by {self._shown_holder()}: stop that one first, or give this one a "
            f"{self._noun} of its own"
        )

    def _shown_holder(self) -> str:
        return self.holder() or "another process"

    def holder(self) -> str:
        """The holder's name as the file has it; "" when the file has none."""
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


class InodeLock:
    """A lock on the database file itself. It holds under every name of the file, and when the lock file is removed.

    SQLite has POSIX locks on the same file, and a process loses those when it closes any descriptor of the file. So
    this one is opened before SQLite opens the file, and closed after SQLite has closed it.
    """

    # Files that this process has locked: to close a second descriptor of one would drop SQLite's locks.
    _ours: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: Path, holder: Callable[[], str]) -> None:
        """``holder`` returns the process that may have the file, for messages."""
        self._path = path
        self._holder = holder
        self._handle: int | None = None
        self._inode: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Makes the file where there is none, readable for its owner alone, and locks it. OSError when it cannot."""
        if self._handle is not None:
            return
        if self._path.exists() and _inode(self._path.stat()) in self._ours:
            raise self._refusal()
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(handle)
        except BaseException:
            os.close(handle)
            raise
        self._handle, self._inode = handle, _inode(os.fstat(handle))
        self._ours.add(self._inode)

    def release(self) -> None:
        """Releases the lock. May be called twice."""
        if self._handle is not None:
            os.close(self._handle)
        if self._inode is not None:
            self._ours.discard(self._inode)
        self._handle = self._inode = None

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                raise self._refusal() from None
            raise
        if not self._is_apart_from_posix_locks():  # NFS, macOS: SQLite would wait for our own lock for ever
            fcntl.flock(handle, fcntl.LOCK_UN)

    def _is_apart_from_posix_locks(self) -> bool:
        """Whether the file can have a POSIX lock beside ours; asked for a byte that SQLite does not lock."""
        probe = os.open(self._path, os.O_RDWR)
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return False
        finally:
            os.close(probe)
        return True

    def _refusal(self) -> JournalLockedError:
        return JournalLockedError(
            f"{self._path} is in use by {self._holder() or 'another process'}, perhaps under another name: stop that "
            "one first"
        )


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def myself() -> str:
    """Names this process, for messages of another process that finds the journal in use."""
    return f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
