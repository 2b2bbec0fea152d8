"""Seals each row with a checksum and verifies it, so that a flipped bit on a disk does not become another record.

The checksum covers the table's name and every column in the table's order. JSON is the canonical form: both databases
give it the same values. A column that a later release adds behind the others changes no checksum while it is NULL; a
migration that fills it seals the rows again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, select, update

from cloudgraft.store.journal import JournalBrokenError

CHECKSUM: Final = "checksum"  # the column
_NUMBERED: Final = {"events": "seq"}  # keys that the database assigns after the row was sealed; indexes verify them
_AT_ONCE: Final = 1000
_canonical = json.JSONEncoder(separators=(",", ":"), default=repr).encode


class IllegalRowError(JournalBrokenError):
    """A row that cannot be a record, or is not the one that was written; ``problem`` says in short what is wrong."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the journal cannot be read: {problem}; `cloudgraft db check` names every such row. Stop cloudgraft; put "
            "a backup in its place, or run `cloudgraft db repair`"
        )
        self.problem = problem


def columns(table: Table) -> list[str]:
    """The columns that hold the record: all but the checksum."""
    return [column.name for column in table.c if column.name != CHECKSUM]


class Seal:
    """Makes and verifies the checksums of one table's rows."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.c]
        covered = [name for name in columns(table) if name != _NUMBERED.get(table.name)]
        self._table = table
        self._names = covered
        self._at = names.index(CHECKSUM)
        self._covered = [names.index(name) for name in covered]
        self._floats = [at for at, name in enumerate(covered) if table.c[name].type.python_type is float]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(table: Table) -> Seal:
        """The seal of a table, made once."""
        return Seal(table)

    def sealed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its checksum."""
        return {**row, CHECKSUM: self._sum([row[name] for name in self._names])}

    def expected(self, row: Sequence[Any]) -> int:
        """The checksum that a row, as it is read, should have."""
        return self._sum([row[at] for at in self._covered])

    def is_sound(self, row: Sequence[Any]) -> bool:
        """Whether a row, as it is read, is the one that was written."""
        return bool(row[self._at] == self.expected(row))

    def opened(self, row: Sequence[Any]) -> Sequence[Any]:
        """The row without its checksum, which is not verified."""
        return (*row[: self._at], *row[self._at + 1 :])

    def verified(self, row: Sequence[Any]) -> Sequence[Any]:
        """The row without its checksum; IllegalRowError when it is not the one that was written."""
        if not self.is_sound(row):
            raise IllegalRowError(self.problem(row))
        return self.opened(row)

    def problem(self, row: Sequence[Any]) -> str:
        """The message for a row that is not the one that was written."""
        return f"{self._table.name} {self.key(row)}: the row does not match its checksum"

    def key(self, row: Sequence[Any]) -> str:
        """The row's key, for people."""
        values = dict(zip((column.name for column in self._table.c), row, strict=True))
        key = "/".join(str(values[column.name]) for column in self._table.primary_key)
        return key.encode("utf-8", "backslashreplace").decode()

    def _sum(self, values: list[Any]) -> int:
        for at in self._floats:
            value = values[at]
            if type(value) in (int, float):  # neither a whole number nor a negative zero is stored as such
                values[at] = value + 0.0
        while values and values[-1] is None:
            values.pop()
        text = _canonical([self._table.name, *values])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def seal_all(connection: Connection, table: Table) -> None:
    """Gives every row of a table its checksum, whatever it holds."""
    seal, keys, names = Seal(table), list(table.primary_key), [column.name for column in table.c]
    statement = (
        update(table).where(*(key == bindparam(f"{key.name}_") for key in keys)).values({CHECKSUM: bindparam(CHECKSUM)})
    )
    rows = connection.execute(select(table)).all()
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(
            statement,
            [
                {CHECKSUM: seal.expected(row), **{f"{key.name}_": row[names.index(key.name)] for key in keys}}
                for row in rows[start : start + _AT_ONCE]
            ],
        )
