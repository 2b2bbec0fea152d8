"""Renders the page of the doctor's findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudgraft.doctor.findings import ENTRIES, SECTIONS, Entry

_KEYS: Final[Mapping[str, str]] = {
    "id": "the kind: one of those below",
    "severity": "`error`, `warning` or `note`",
    "title": "the kind in words",
    "where": "the file, Deployment, group or node",
    "what": "the details of this case",
    "why": "why it matters",
    "fix": "the command or the line that fixes it",
}


def findings_page() -> str:
    """The page, as Markdown."""
    lines = [
        "# Findings of `cloudgraft doctor`",
        "",
        "What [doctor](../how-to/find-what-is-wrong-with-doctor.md) can find. An *error* does not work, or does harm;",
        "a *warning* works until something else happens; a *note* is worth knowing. An id never changes.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | nothing was found, or notes only |",
        "| 1 | at least one warning |",
        "| 2 | wrong usage of the command |",
        "| 3 | at least one error |",
        "",
        "With `-o json` one object is written: `findings`, worst first, and how many there are of each severity:",
        "`errors`, `warnings` and `notes`. Keys may be added; none goes away or changes its meaning.",
        "",
        "| key of a finding | meaning |",
        "|---|---|",
        *(f"| `{key}` | {meaning} |" for key, meaning in _KEYS.items()),
        "",
    ]
    for title, section in SECTIONS.items():
        lines += [f"## {title}", "", "| id | | what | why it matters | fix |", "|---|---|---|---|---|"]
        lines += [_row(ENTRIES[id_]) for id_ in section]
        lines.append("")
    return "\n".join(lines)


def _row(entry: Entry) -> str:
    cells = (f"`{entry.id}`", entry.severity.value, *map(_cell, (entry.title, entry.why, entry.fix)))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
