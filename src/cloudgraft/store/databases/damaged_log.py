"""Finds damage in a SQLite write-ahead log before SQLite reads it, and removes it."""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloudgraft.store.databases.files import flush_directory, write_whole
from cloudgraft.store.journal import JournalUnavailableError

# -- detection (pure) --------------------------------------------------------------------------------------------------
# SQLite reads a log up to the first frame whose checksum is wrong, and takes the rest for a write that a loss of power
# interrupted. A bit that flipped in an earlier commit looks the same to it, and it silently drops that commit and all
# later ones.
#
# The two can be distinguished, because each checksum goes on from the one before it, and because with
# `synchronous=FULL` the disk has a commit before the next one is begun:
#
# - What a loss of power leaves half written is the last commit in the log, and nothing that goes on from it follows.
# - A frame that goes on from the end of a commit is of a later one. It began after the disk had the one before it.
#   So a wrong frame in front of that is damage, and confirmed commits are lost.
#
# Damage in the last commit alone looks like an interrupted write, and is not reported. Nor are frames of
# writes that were rolled back, or of an earlier use of the file: no later commit goes on from those.
#
# A loss of power alone is never reported as damage, if the disk keeps what it has confirmed and writes a sector of 512
# bytes whole or not at all (which SQLite expects of it too: SQLITE_POWERSAFE_OVERWRITE), and if no process wrote with
# less than `synchronous=FULL`.


_HEADER: Final = 32  # bytes
_FRAME: Final = 24  # bytes in front of each page
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}  # the byte order of what is summed up
_SECTOR: Final = 512  # bytes that a disk writes whole or not at all
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(9, 17))
_MASK: Final = 0xFFFFFFFF

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Where a log is damaged."""

    frame: int  # the first one that is wrong, counted from 1; 0 for the header
    lost: int  # commits that the disk had, and that are not read; at least
    sound: int  # bytes at the beginning that hold whole commits


def find_damage(log: bytes) -> Damage | None:
    """Returns the damage of a log, if it proves that commits are lost."""
    if len(log) <= _HEADER + _FRAME:
        return None
    header = _Header.of(log)
    if header is not None:
        return _in_frames(log, header)
    for candidate in _damaged_headers(log):
        frames = _Frames(log, candidate)
        if frames.count and frames.goes_on(0):  # the disk has a header before anything follows it
            commits = sum(frames.is_commit(number) and frames.goes_on(number) for number in range(frames.count))
            return Damage(frame=0, lost=commits, sound=0) if commits else None
    return None


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a log: what is needed to read its frames."""

    order: str
    page: int  # bytes
    salts: bytes
    sum: Sum

    @classmethod
    def of(cls, log: bytes) -> _Header | None:
        """None when it is damaged."""
        magic, _, page, _ = struct.unpack_from(">4I", log)
        order = _MAGIC.get(magic)
        stored: Sum = struct.unpack_from(">2I", log, 24)
        if order is None or page not in _PAGE_SIZES or _summed((0, 0), order, log[:24]) != stored:
            return None
        return cls(order, page, log[16:24], stored)


def _damaged_headers(log: bytes) -> Iterator[_Header]:
    """Yields possible originals: the header's own sum is right, or everything else is. Frames have the salts too."""
    stored: Sum = struct.unpack_from(">2I", log, 24)
    salts = log[_HEADER + 8 : _HEADER + 16]
    for page in _PAGE_SIZES:
        for order in _MAGIC.values():
            yield _Header(order, page, salts, stored)
            yield _Header(order, page, salts, _summed((0, 0), order, log[:24]))


class _Frames:
    """The frames of a log, each judged by the one before it."""

    def __init__(self, log: bytes, header: _Header) -> None:
        self._log = log
        self._header = header
        self._size = _FRAME + header.page
        self.count = (len(log) - _HEADER) // self._size

    def start(self, number: int) -> int:
        """Where a frame begins; also the end of the one before."""
        return _HEADER + number * self._size

    def is_commit(self, number: int) -> bool:
        """Whether a commit ends here."""
        return self._log[self.start(number) + 4 : self.start(number) + 8] != bytes(4)

    def is_of_now(self, number: int) -> bool:
        """Whether it was written since the log was begun, and is a page."""
        at = self.start(number)
        return self._log[at + 8 : at + 16] == self._header.salts and self._log[at : at + 4] != bytes(4)

    def stored(self, number: int) -> Sum:
        """The sum up to here, as it is written; of -1, that of the header."""
        if number < 0:
            return self._header.sum
        found: Sum = struct.unpack_from(">2I", self._log, self.start(number) + 16)
        return found

    def summed(self, number: int, before: Sum) -> Sum:
        """The sum up to here, as it must be."""
        at = self.start(number)
        head = _summed(before, self._header.order, self._log[at : at + 8])
        return _summed(head, self._header.order, self._log[at + _FRAME : at + self._size])

    def goes_on(self, number: int, before: Sum | None = None) -> bool:
        """Whether it is sound and follows the one before it."""
        seed = self.stored(number - 1) if before is None else before
        return self.is_of_now(number) and self.summed(number, seed) == self.stored(number)

    def is_written_whole(self, number: int) -> bool:
        """Whether its head is in one sector, so that its parts are of the same write, whatever became of its page."""
        return self.start(number) % _SECTOR <= _SECTOR - _FRAME and self.is_of_now(number)


def _in_frames(log: bytes, header: _Header) -> Damage | None:
    frames = _Frames(log, header)
    wrong, sound = 0, 0
    while wrong < frames.count and frames.goes_on(wrong):  # as SQLite does
        wrong += 1
        if frames.is_commit(wrong - 1):
            sound = wrong
    if wrong >= frames.count:
        return None
    true_sum = frames.summed(wrong, frames.stored(wrong - 1))
    lost = 0
    is_sure = frames.is_written_whole(wrong) or true_sum == frames.stored(wrong)  # the latter: only salts are damaged
    for number in range(wrong + 1, frames.count):
        follows = frames.goes_on(number)
        if not follows and number == wrong + 1:
            follows = is_sure = frames.goes_on(number, true_sum)  # only the sum of the frame before is damaged
        if follows and is_sure and frames.is_commit(number - 1):
            lost += 1  # the commit that ends in front of this frame
        is_sure = follows or frames.is_written_whole(number)
    return Damage(frame=wrong + 1, lost=lost, sound=frames.start(sound)) if lost else None


def _summed(before: Sum, order: str, data: bytes) -> Sum:
    """SQLite's checksum, going on from another."""
    first, second = before
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second


_log = logging.getLogger("cloudgraft.store")
_AGAIN: Final = 0.2  # seconds until a damaged log is read once more


class DamagedLog:
    """The log of a database. Use it only while this process has not opened that: closing a file ends SQLite's locks."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-wal")
        # Exists from before the log is cut until the repair is done, so that an interrupted repair does not look done.
        self._note = database.with_name(f"{database.name}.lost-commits")

    def lost_commits(self) -> str:
        """Describes the commits that cannot be read any more; empty when there are none."""
        if self._note.exists():
            return self._note.read_text("utf-8").strip() or f"a repair of {self._database} was not finished"
        damage = self._damage()
        if damage is None:
            return ""
        where = f"in frame {damage.frame}" if damage.frame else "in its header"
        return f"{self._path} is damaged {where}: commits are lost, at least {damage.lost}"

    def cut(self) -> None:
        """Removes what cannot be read. A copy of the database and the log is kept."""
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
        """Removes the note of lost commits once the repair is done."""
        self._note.unlink(missing_ok=True)
        flush_directory(self._note.parent)

    def _damage(self) -> Damage | None:
        """Damage that two reads show alike: a server may write to the log, or remove it, while `db check` reads."""
        found = self._read()
        if found is None:
            return None
        time.sleep(_AGAIN)
        return found if self._read() == found else None

    def _read(self) -> Damage | None:
        try:
            return find_damage(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalUnavailableError(f"cannot read {self._path}: {error.strerror or error}") from error
