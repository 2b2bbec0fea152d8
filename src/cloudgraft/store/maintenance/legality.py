"""Validates rows that cloudgraft did not just write: from an import, or from a damaged file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Table

from cloudgraft.store import schema
from cloudgraft.store.records import Presence, State
from cloudgraft.store.rows import CHECKSUM, IllegalRowError, Reader, columns


class RowJudge:
    """Validates rows, one after another."""

    def __init__(self) -> None:
        reader = Reader()
        self._readers = {
            schema.machines.name: reader.machine,
            schema.node_groups.name: reader.group,
            schema.learned.name: reader.learned,
            schema.clouds.name: reader.cloud,
            schema.pauses.name: reader.pause,
            schema.requests.name: reader.request,
            schema.declared_groups.name: reader.declared,
            schema.progress.name: reader.progress,
            schema.events.name: reader.event,
        }

    def problem(self, table: Table, row: Sequence[Any]) -> str:
        """The problem of a row of that table, given without its checksum; "" when there is none."""
        values = dict(zip(columns(table), row, strict=True))
        key = "/".join(str(values[column.name]) for column in table.primary_key)
        for column in table.c:
            if column.name != CHECKSUM and not _fits(column, values[column.name]):
                return f"{table.name} {key}: {column.name} cannot be {values[column.name]!r}"
        try:
            self._readers[table.name](row)
        except IllegalRowError as error:
            return error.problem
        return f"{table.name} {key}: {found}" if table is schema.machines and (found := _contradiction(values)) else ""


def _fits(column: Column[Any], value: object) -> bool:
    if value is None:
        return bool(column.nullable)
    expected = column.type.python_type
    if isinstance(value, bool) or expected is bool:
        return isinstance(value, bool) and expected is bool
    return isinstance(value, (int, float) if expected is float else expected)


def _contradiction(values: Mapping[str, Any]) -> str:
    """A contradiction between values of one machine that are each valid; "" when there is none."""
    if values["version"] < 1:
        return "its version is below 1"
    if values["state"] == State.GONE.value and values["gone_at"] is None:
        return "it is gone, but not since when"
    if values["presence"] == Presence.PRESENT.value and not values["machine_id"]:
        return "it is present in its cloud, but under no machine id"
    return ""
