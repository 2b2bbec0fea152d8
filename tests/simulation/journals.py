"""What happens to the journal of a server: lost, restored, exchanged, damaged; and what a person does about it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.simulation import foreign

if TYPE_CHECKING:
    from tests.simulation.world import World

OPERATOR: Final = 300.0  # seconds until a person looks at a server that does not start
_BACKUP_EVERY: Final = 3000.0


class Journals:
    """Tampers with the medium of a run, and tells the judge."""

    def __init__(self, world: World) -> None:
        self.damaged: set[str] = set()  # names that a flipped bit has made
        self._world = world
        self._aside: Path | None = None  # the right one, while another is in its place

    def begin(self) -> None:
        """From now on there are backups."""
        self._world.loop.later(_BACKUP_EVERY, self.back_up)

    def lose(self, *, with_id: bool) -> None:
        """The files are gone, perhaps with the cluster id beside them."""
        self._world.judge.on_destroyed()
        self._world.server.disk.lose(with_id=with_id)
        if with_id:
            self._world.loop.later(OPERATOR, self._give_id)

    def _give_id(self) -> None:
        """A person reads the message that says so, and sets `clusterId`."""
        self._world.server.cluster_id = self._world.cluster_id
        self._world.crash(0, 10)

    def restore(self, age: float) -> None:
        """Somebody puts the latest backup of that age in its place."""
        then = self._world.loop.time() - age
        found = [path for at, path in self._world.server.disk.backups if at <= then]
        if found:
            self._world.judge.on_destroyed()
            self._world.server.disk.restore(found[-1])

    def exchange(self) -> None:
        """Somebody puts the journal of another cluster in its place."""
        disk = self._world.server.disk
        if self._aside is None and disk.path.exists():
            self._aside = disk.path.with_name("aside.db")
            shutil.copyfile(disk.path, self._aside)
            self._world.judge.on_destroyed()
            disk.lose(with_id=False)
            foreign.write_journal(disk.path, self._world)

    def put_back(self) -> None:
        """Somebody puts the right one back."""
        if self._aside is not None:
            self._world.crash(0, 10, self._put_back)

    def _put_back(self) -> None:
        if self._aside is not None:
            self._world.judge.on_destroyed()
            self._world.server.disk.restore(self._aside)
            self._aside = None

    def flip_bit(self, bit: int) -> None:
        """One bit of the file is another one."""
        path = self._world.server.disk.path
        if path.exists() and path.stat().st_size:
            data = bytearray(path.read_bytes())
            where = bit % (len(data) * 8)
            data[where // 8] ^= 1 << (where % 8)
            path.write_bytes(data)
            self._world.judge.on_destroyed()

    def flip_record(self, pick: int) -> None:
        """One bit of a machine's name is another one: a record that nobody has written."""
        with (
            contextlib.closing(sqlite3.connect(self._world.server.disk.path)) as connection,
            contextlib.suppress(sqlite3.Error),
        ):
            names = [row[0] for row in connection.execute("SELECT name FROM machines ORDER BY name")]
            if names:
                name = names[pick % len(names)]
                flipped = name[:-1] + chr(ord(name[-1]) ^ 2)
                connection.execute("UPDATE machines SET name = ? WHERE name = ?", (flipped, name))
                connection.commit()
                self.damaged.add(flipped)
                self._world.judge.on_destroyed()

    def tear(self, count: int) -> None:
        """The end of the file is missing."""
        path = self._world.server.disk.path
        if path.exists():
            data = path.read_bytes()
            path.write_bytes(data[: max(0, len(data) - count)])
            self._world.judge.on_destroyed()

    def back_up(self) -> None:
        """As people do, every now and then."""
        self._world.loop.later(_BACKUP_EVERY, self.back_up)
        if self._world.postgres is None and self._world.server.is_serving and self._aside is None:
            self._world.server.disk.back_up(self._world.loop.time())

    def recover(self) -> None:
        """A person puts back what was there before, or the latest backup: each once, for it may be damaged too."""
        if self._aside is not None:
            self._put_back()
        elif self._world.postgres is not None:
            return
        elif self._world.server.disk.backups:
            self.restore(0.0)
            self._world.server.disk.backups.pop()
        else:
            self.lose(with_id=False)
