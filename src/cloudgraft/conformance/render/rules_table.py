"""Renders the table of rules: the checks of each rule, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.rules import RULES, Level, Rule

_STYLES: Final = {Level.MUST: "bold red", Level.SHOULD: "yellow", Level.NOTE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rule and the checks that name it."""

    rule: Rule
    checks: tuple[Check[Any], ...]


def rows(checks: Iterable[Check[Any]], only: Sequence[str] = ()) -> list[Row]:
    """A row for every rule, or for those in `only`, which may name rules and checks."""
    every = tuple(checks)
    found = [Row(rule=rule, checks=tuple(c for c in every if rule.id in c.rules)) for rule in RULES.values()]
    return [row for row in found if not only or {row.rule.id, *(c.name for c in row.checks)} & set(only)]


def view(table: Iterable[Row]) -> Table:
    """For a terminal."""
    made = Table("RULE", "LEVEL", "WHAT IT SAYS", "CHECKS", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in table:
        seen = ", ".join(check.name for check in row.checks) or f"none: {row.rule.unobservable}"
        level = Text(row.rule.level, style=_STYLES[row.rule.level])
        made.add_row(Text(row.rule.id), level, Text(row.rule.title), Text(seen))
    return made


def to_json(table: Iterable[Row]) -> str:
    """For programs."""
    data = [
        {
            "rule": row.rule.id,
            "level": row.rule.level.value,
            "title": row.rule.title,
            "why": row.rule.why,
            "fix": row.rule.fix,
            "checks": [_check(check) for check in row.checks],
            "unobservable": row.rule.unobservable,
        }
        for row in table
    ]
    return json.dumps(data, indent=2)


def _check(check: Check[Any]) -> dict[str, object]:
    return {
        "name": check.name,
        "title": check.title,
        "level": check.level.value,
        "after": list(check.after),
        "needs": [need.value for need in check.needs],
        "since": check.since,
    }
