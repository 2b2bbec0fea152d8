"""What a finding is, and how bad."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Entry", "Finding", "Severity", "exit_code"]


class Severity(enum.StrEnum):
    """How bad it is; the order is from worst to least."""

    ERROR = "error"  # it does not work, or does harm
    WARNING = "warning"  # it works until something else happens
    NOTE = "note"  # worth knowing; nothing has to be done

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kind of finding. ``id`` never changes: scripts go by it."""

    id: str
    severity: Severity
    title: str
    why: str  # why it hurts
    fix: str  # what mends it, where nothing more exact is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found."""

    entry: Entry
    where: str  # the file, the Deployment, the group, the node
    what: str  # in the words of this very case
    fix: str  # the command or the line that mends it

    @property
    def sort_key(self) -> tuple[int, str, str, str]:
        """Worst first; else by id and place, so that two runs can be compared."""
        return self.entry.severity.rank, self.entry.id, self.where, self.what

    def as_json(self) -> dict[str, str]:
        """For programs."""
        return {
            "id": self.entry.id,
            "severity": self.entry.severity.value,
            "title": self.entry.title,
            "where": self.where,
            "what": self.what,
            "why": self.entry.why,
            "fix": self.fix,
        }


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when there is nothing worse than a note, 1 with warnings, 3 with errors; 2 is left to wrong usage."""
    found = {finding.entry.severity for finding in findings}
    if Severity.ERROR in found:
        return 3
    return 1 if Severity.WARNING in found else 0
