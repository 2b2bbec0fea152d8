"""Looking at real processes: who is below whom, and who is still there."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be confused with a later one of the same number."""

    pid: int
    started: int
    command: str

    @property
    def is_alive(self) -> bool:
        return _look(self.pid) == self


def alive(pid: int) -> Process | None:
    """The process of that number, unless it is gone or a zombie."""
    return _look(pid)


def below(pid: int) -> list[Process]:
    """Every living descendant, in any group or session."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = list[int](), [pid]
    while todo:
        under = children.get(todo.pop(), [])
        found += under
        todo += under
    return [process for process in map(_look, found) if process is not None]


def came_after(others: Collection[Process]) -> list[Process]:
    """Every living descendant of ours but ``others``: what other tests share, a database say, is not of this one."""
    return [process for process in below(os.getpid()) if process not in others]


def in_session(session: int) -> list[Process]:
    """Every living process of a session, whoever its parent is by now."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    members = [pid for pid in pids if (fields := _stat(pid)) and int(fields[3]) == session]
    return [process for process in map(_look, members) if process is not None]


def _look(pid: int) -> Process | None:
    fields = _stat(pid)
    if not fields or fields[0] == "Z":
        return None
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return None
    return Process(pid, int(fields[19]), command)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
