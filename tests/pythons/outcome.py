"""Reads what a demo and a run of the tests have printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Figures", "demo_fault", "figures", "skips"]

_SUMMARY: Final = re.compile(r"^=*\s*(\d+ [a-z]+(?:, \d+ [a-z]+)*) in (\d+\.\d+)s", re.MULTILINE)
_HARMLESS: Final = {"passed", "skipped", "deselected", "warnings", "warning"}
_SKIPPED: Final = re.compile(r"^SKIPPED .*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many tests ended how, and in how many seconds."""

    counts: dict[str, int]
    seconds: float

    @property
    def is_passed(self) -> bool:
        """Some passed, and none did anything but pass, be left out, or warn."""
        return bool(self.counts.get("passed")) and not {*self.counts} - {
            "passed",
            "skipped",
            "deselected",
            "warnings",
            "warning",
        }

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.items()) + f" in {self.seconds:.0f} s"


def figures(printed: str) -> Figures | None:
    """What pytest's last line says; None when it has not come to that."""
    found = _SUMMARY.findall(printed)
    if not found:
        return None
    counts, seconds = found[-1]
    pairs = (part.split() for part in counts.split(", "))
    return Figures(counts={what: int(count) for count, what in pairs}, seconds=float(seconds))


def skips(printed: str) -> list[str]:
    """Pytest's lines on tests that were skipped, each with what is missing for them."""
    return _SKIPPED.findall(printed)


def demo_fault(printed: str) -> str:
    """What is wrong with what the demo has shown; empty when nothing is."""
    return "" if "lost 0, doubled 0" in printed else "it does not say that no machine was lost or doubled"
