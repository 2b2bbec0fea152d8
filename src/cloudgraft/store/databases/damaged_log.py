"""The write-ahead log of a SQLite file, before SQLite reads it: whether it is damaged, and how to let go of the damage.

What is damaged, and how that is known, is said in :mod:`cloudgraft.store.databases.wal`.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

from cloudgraft.store.databases import wal
from cloudgraft.store.databases.files import flush_directory, write_whole
from cloudgraft.store.journal import JournalUnavailableError

__all__ = ["DamagedLog"]

_log = logging.getLogger("cloudgraft.store")
_AGAIN: Final = 0.2  # seconds until a damaged log is looked at once more


class DamagedLog:
    """Use it only while nobody in this process has the database open: to close a file ends SQLite's locks on it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-wal")
        # There from before the log is cut until the repair is done: a repair that ends in between must not look done.
        self._note = database.with_name(f"{database.name}.lost-commits")

    def lost_commits(self) -> str:
        """What cannot be read any more; empty for nothing."""
        if self._note.exists():
            return self._note.read_text("utf-8").strip() or f"a repair of {self._database} was not finished"
        damage = self._damage()
        if damage is None:
            return ""
        where = f"in frame {damage.frame}" if damage.frame else "in its header"
        return f"{self._path} is damaged {where}: commits are lost, at least {damage.lost}"

    def cut(self) -> None:
        """Lets go of what cannot be read. A copy of the database and the log is kept."""
        damage, lost = self._damage(), self.lost_commits()
        if damage is None:
            return
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        kept = self._database.with_name(f"{self._database.name}.damaged-{at}")
        write_whole(kept, self._database.read_bytes())
        write_whole(kept.with_name(f"{kept.name}-wal"), self._path.read_bytes())
        write_whole(self._note, f"{lost}\n".encode())
        os.truncate(self._path, damage.sound)
        _log.warning("the write-ahead log was cut before its damage; a copy is kept", extra={"copy": str(kept)})

    def forget(self) -> None:
        """The repair is done."""
        self._note.unlink(missing_ok=True)
        flush_directory(self._note.parent)

    def _damage(self) -> wal.Damage | None:
        """Found twice, and the same: `db check` may look while a server writes, or lets go of the log."""
        found = self._read()
        if found is None:
            return None
        time.sleep(_AGAIN)
        return found if self._read() == found else None

    def _read(self) -> wal.Damage | None:
        try:
            return wal.find_damage(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalUnavailableError(f"cannot read {self._path}: {error.strerror or error}") from error
