"""Records every machine ever made in a SQLite file that survives kill -9 and a power cut.

One cloud at a time has the file. A second one is refused, because each keeps its present machines in memory. Not safe
for threads: the cloud guards it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import PreconditionError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import Order, Record

_FORMAT: Final = "1"
_COLUMNS: Final = (
    "seq",
    "machine_id",
    "name",
    "token",
    "client",
    "settings",
    "tags",
    "shape",
    "hourly",
    "currency",
    "created_at",
    "boots_at",
    "dies_at",
    "tags_lost_at",
    "delete_asked_at",
    "gone_at",
    "creates",
    "deletes",
    "deleted_by",
)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS machines (
    seq INTEGER PRIMARY KEY,
    machine_id TEXT NOT NULL,
    name TEXT NOT NULL,
    token TEXT NOT NULL,
    client TEXT NOT NULL,
    settings TEXT NOT NULL,
    tags TEXT NOT NULL,
    shape TEXT NOT NULL,
    hourly TEXT,
    currency TEXT NOT NULL,
    created_at REAL NOT NULL,
    boots_at REAL,
    dies_at REAL,
    tags_lost_at REAL,
    delete_asked_at REAL,
    gone_at REAL,
    creates INTEGER NOT NULL,
    deletes INTEGER NOT NULL,
    deleted_by TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS machines_by_token ON machines (token);
"""
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM machines"  # noqa: S608 - made of the constants above
_WRITE: Final = (
    f"INSERT OR REPLACE INTO machines ({', '.join(_COLUMNS)}) "  # noqa: S608 - made of the constants above
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_Row = tuple[object, ...]


class Ledger:
    """All machines of one cloud, gone ones included. Rows are never removed, so that no number is used twice.

    An id can be used again, when an order asks for it. A file of an older release keeps the latest machine of each id.
    """

    def __init__(self, path: Path | None, *, ident: str) -> None:
        """Opens the file, or keeps the ledger in memory; ``ident`` becomes the cloud's own id when it is new."""
        self._path = path
        with self._explained("opened"):
            if path is not None:
                _keep_to_owner(path)
            self._db = sqlite3.connect(
                ":memory:" if path is None else path, isolation_level=None, check_same_thread=False, timeout=0.3
            )
        # A ledger that is garbage-collected closes its file as well; SQLite alone would warn about it.
        self._close = weakref.finalize(self, self._db.close)
        try:
            with self._explained("opened"):
                self._prepare(ident)
        except BaseException:
            self._close()
            raise

    def _prepare(self, ident: str) -> None:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.execute("BEGIN IMMEDIATE")  # takes the lock, and keeps it
        self._db.execute("COMMIT")
        self._db.executescript(_SCHEMA)
        self._db.execute("INSERT OR IGNORE INTO about VALUES ('format', ?)", (_FORMAT,))
        self._db.execute("INSERT OR IGNORE INTO about VALUES ('ident', ?)", (ident,))
        about: dict[str, str] = dict(self._db.execute("SELECT key, value FROM about"))
        if about["format"] != _FORMAT:
            raise PreconditionError(
                f"the ledger {self._path} has the format {about['format']}, and this program writes {_FORMAT}: "
                "use the program that wrote it, or another file"
            )
        self.ident = about["ident"]

    def write(self, record: Record) -> None:
        """Writes a record; it is on disk when this returns. On an error nothing was written."""
        with self._explained("written"):
            self._db.execute(_WRITE, _row(record))

    def last_seq(self) -> int:
        """The highest number that was ever given."""
        with self._explained("read"):
            (last,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM machines").fetchone()
        return int(last)

    def present_after(self, moment: float) -> list[Record]:
        """The machines that were still there at that moment, oldest first."""
        return self._read(f"{_SELECT} WHERE gone_at IS NULL OR gone_at > ? ORDER BY seq", (moment,))

    def find_token(self, token: str) -> Record | None:
        """The first machine that was made for a token."""
        found = self._read(f"{_SELECT} WHERE token = ? ORDER BY seq LIMIT 1", (token,))
        return found[0] if found else None

    def all(self) -> list[Record]:
        """Every machine ever made, oldest first."""
        return self._read(f"{_SELECT} ORDER BY seq", ())

    def close(self) -> None:
        """Closes the file."""
        self._close()

    def _read(self, query: str, values: Sequence[object]) -> list[Record]:
        with self._explained("read"):
            return [_record(row) for row in self._db.execute(query, values)]

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Translates errors of SQLite to errors that say what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise PreconditionError(
                    f"the ledger {self._path} is in use by another simulated cloud: stop it, or give each its own file"
                ) from error
            raise UnavailableError(f"the ledger {self._path} cannot be {what}: {error}") from error
        except OSError as error:
            raise UnavailableError(f"the ledger {self._path} cannot be {what}: {error.strerror or error}") from error
        except sqlite3.ProgrammingError as error:
            raise UnavailableError("this simulated cloud is closed") from error
        except sqlite3.DatabaseError as error:
            raise PreconditionError(f"{self._path} is not a ledger that can be {what}: {error}") from error


def _keep_to_owner(path: Path) -> None:
    """Makes the file, if it is not there, so that only its owner reads it; SQLite gives its other files that mode."""
    with contextlib.suppress(FileExistsError):  # to close another descriptor of it would end SQLite's locks
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


# -- rows --------------------------------------------------------------------------------------------------------------


def _row(record: Record) -> _Row:
    order = record.order
    return (
        record.seq,
        record.machine_id,
        order.name,
        order.token,
        order.client,
        json.dumps(order.settings.to_json()),
        json.dumps(dict(order.tags)),
        _shape_to_text(record.shape),
        None if record.hourly is None else str(record.hourly),
        record.currency,
        record.created_at,
        record.boots_at,
        record.dies_at,
        record.tags_lost_at,
        record.delete_asked_at,
        record.gone_at,
        record.creates,
        record.deletes,
        record.deleted_by,
    )


def _record(row: Sequence[object]) -> Record:
    # The names of the columns are those of the fields, but for these seven.
    values: dict[str, object] = dict(zip(_COLUMNS, row, strict=True))
    order = Order(
        name=str(values.pop("name")),
        token=str(values.pop("token")),
        client=str(values.pop("client")),
        settings=_settings_from_text(str(values.pop("settings"))),
        tags=json.loads(str(values.pop("tags"))),
    )
    shape = _shape_from_text(str(values.pop("shape")))
    hourly = values.pop("hourly")
    # The schema says what type each column has; mypy cannot see that.
    rest: dict[str, Any] = values
    return Record(order=order, shape=shape, hourly=None if hourly is None else Decimal(str(hourly)), **rest)


def _shape_to_text(shape: Shape) -> str:
    capacity = {name: str(amount) for name, amount in shape.capacity.items()}
    return json.dumps({"name": shape.name, "capacity": capacity, "labels": dict(shape.labels)})


@lru_cache(maxsize=256)  # thousands of machines share a few shapes
def _shape_from_text(text: str) -> Shape:
    data = json.loads(text)
    capacity = {name: Quantity(amount) for name, amount in data["capacity"].items()}
    return Shape(name=data["name"], capacity=capacity, labels=data["labels"])


@lru_cache(maxsize=256)  # and settings too
def _settings_from_text(text: str) -> MachineSettings:
    return MachineSettings.read(json.loads(text))
