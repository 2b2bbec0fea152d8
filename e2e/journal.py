"""What cloudgraft's journal and log say, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Call", "Journal", "LogReader", "read_calls", "read_journal", "split_into_loops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the autoscaler, as cloudgraft's log has it."""

    rpc: str
    code: str
    group: str = ""
    delta: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """An export of the journal: rows as they are."""

    machines: Sequence[dict[str, Any]]
    events: Sequence[dict[str, Any]]

    def alive(self) -> dict[str, dict[str, Any]]:
        """Machines that are not gone, by name."""
        return {row["name"]: row for row in self.machines if row["state"] != "gone"}

    def kinds(self, group: str = "") -> list[str]:
        """The kinds of all events in order, of one group or of all."""
        return [row["kind"] for row in self.events if not group or row["group_id"] == group]


def read_journal(text: str) -> Journal:
    """From what ``cloudgraft db export`` writes."""
    rows: dict[str, list[dict[str, Any]]] = {"machines": [], "events": []}
    for line in text.splitlines():
        entry = json.loads(line)
        if entry.get("table") in rows:
            rows[entry["table"]].append(entry["row"])
    return Journal(machines=rows["machines"], events=sorted(rows["events"], key=lambda row: int(row["seq"])))


class LogReader:
    """Reads a log of JSON lines on from where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> Sequence[dict[str, Any]]:
        """All so far. A line that a kill -9 cut off is left out."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            self._entries += _parsed(whole.decode("utf-8", "replace").splitlines())
        return self._entries


def _parsed(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        start = line.rfind('{"event"')  # behind what a killed process had begun
        try:
            entry = json.loads(line[start:]) if start >= 0 else None
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def read_calls(entries: Iterable[dict[str, Any]]) -> list[Call]:
    """Every call, in the order in which they were answered."""
    return [
        Call(
            rpc=str(entry["rpc"]),
            code=str(entry["code"]),
            group=str(entry.get("group", "")),
            delta=int(entry.get("delta") or 0),
        )
        for entry in entries
        if entry.get("event") == "call"
    ]


def split_into_loops(calls: Sequence[Call]) -> list[list[Call]]:
    """The calls by main loop: each begins with Refresh. What came before the first one is left out."""
    loops: list[list[Call]] = []
    for call in calls:
        if call.rpc == "Refresh":
            loops.append([])
        if loops:
            loops[-1].append(call)
    return loops
