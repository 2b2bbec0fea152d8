"""The table of rules: which checks look at each, or why none can."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.rules import RULES, Level, Rule

__all__ = ["Row", "rows", "to_json", "to_markdown", "view"]

_STYLES: Final = {Level.MUST: "bold red", Level.SHOULD: "yellow", Level.NOTE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rule and the checks that name it."""

    rule: Rule
    checks: tuple[Check, ...]


def rows(checks: Iterable[Check], only: Sequence[str] = ()) -> list[Row]:
    """A row for every rule, or for those that are asked for; `only` may name rules and checks."""
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


def _check(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "title": check.title,
        "level": check.level.value,
        "after": list(check.after),
        "needs": [need.value for need in check.needs],
        "since": check.since,
    }


def to_markdown(checks: Sequence[Check]) -> str:
    """The tables of the reference page: numbers, rules, checks."""
    return "\n".join(
        ["## In numbers", "", *_numbers(checks), "", "## Rules", "", *_rules(checks), "", *_checks(checks)]
    )


def _numbers(checks: Sequence[Check]) -> Iterator[str]:
    table = rows(checks)
    yield "| level | rules and traces | with a check | not to be seen from outside | checks |"
    yield "|---|---|---|---|---|"
    for level in Level:
        found = [row for row in table if row.rule.level is level]
        own = sum(check.level is level for check in checks)
        yield f"| {level} | {len(found)} | {_with(found)} | {len(found) - _with(found)} | {own} |"
    yield f"| all | {len(table)} | {_with(table)} | {len(table) - _with(table)} | {len(checks)} |"


def _with(table: Iterable[Row]) -> int:
    return sum(bool(row.checks) for row in table)


def _rules(checks: Sequence[Check]) -> Iterator[str]:
    yield "| rule | level | what it says | if it is broken | what to do | checks |"
    yield "|---|---|---|---|---|---|"
    for row in rows(checks):
        rule = row.rule
        seen = ", ".join(f"[{check.name}](#{check.name})" for check in row.checks) or f"none: {rule.unobservable}"
        cells = [rule.id, rule.level, rule.title, rule.why, rule.fix, seen]
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _checks(checks: Sequence[Check]) -> Iterator[str]:
    yield "## Checks"
    for check in checks:
        yield ""
        yield f"### {check.name}"
        yield ""
        yield check.title
        yield ""
        yield f"- level: {check.level}; rules: {', '.join(check.rules)}"
        if check.after:
            yield f"- blocked unless these passed: {', '.join(check.after)}"
        if check.needs:
            yield f"- needs in `kit.yaml`: {', '.join(f'`{need.value}`' for need in check.needs)}"
        if check.since:
            yield f"- from release {check.since} on"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
