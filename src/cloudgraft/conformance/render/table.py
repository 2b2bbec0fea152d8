"""Renders a report for a terminal, and the table of rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.render.words import advice, as_called, clean, conclusion, headline, is_violation, rules_of
from cloudgraft.conformance.report import Exchange, Report, Result, Status
from cloudgraft.conformance.rules import RULES, Level, Rule

_LEVEL_STYLES: Final = {Level.MUST: "bold red", Level.SHOULD: "yellow", Level.NOTE: "cyan"}
_STATUS_STYLES: Final = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
    Status.BLOCKED: "yellow",
    Status.INCONCLUSIVE: "bold yellow",
    Status.ERROR: "magenta",
}
_CALLS_SHOWN: Final = 6
"""The last calls of a failed check; the page and the JSON form have all of them."""


def view(report: Report) -> Group:
    """The whole report."""
    return Group(
        *_failures(report),
        *_unjudged(report),
        *_listed(report, Status.INCONCLUSIVE, "Inconclusive: neither passed nor failed", "WHAT IS NEEDED"),
        *_listed(report, Status.BLOCKED, "Blocked: these follow from a failure above"),
        *_listed(report, Status.SKIPPED, "Skipped"),
        *_left_behind(report),
        *_summary(report),
    )


def progress_line(result: Result) -> Text:
    """One line for a check that has just ended."""
    line = Text()
    line.append(f"{result.status:<7} ", _status_style(result))
    line.append(f"{result.level:<7}", "dim")
    line.append(f"{result.check} ")
    line.append(f"[{' '.join(result.rules)}] {result.seconds:.1f}s", "dim")
    if result.status is not Status.PASSED and result.message:
        line.append(f": {headline(result.message, 160)}")
    return line


def _failures(report: Report) -> Iterator[RenderableType]:
    for result in report.failures:
        style = _LEVEL_STYLES[result.level]
        yield Text.assemble(("FAILED ", style), (f"{result.level} ", style), (result.check, "bold"))
        yield _facts([("what must hold", result.title), *_explained(result)])
        yield Text()


def _explained(result: Result) -> Iterator[tuple[str, str | Text]]:
    yield "what came instead", Text(clean(result.message), style=_LEVEL_STYLES[result.level])
    for number, rule in enumerate(rules_of(result)):
        yield ("rule" if number == 0 else ""), f"{rule.id}: {rule.title}"
    yield from _calls(result.exchanges)
    if main := advice(result):
        yield "why it matters", main.why
        yield "how to fix it", main.fix


def _calls(exchanges: Sequence[Exchange]) -> Iterator[tuple[str, str | Text]]:
    if len(exchanges) > _CALLS_SHOWN:
        hidden = len(exchanges) - _CALLS_SHOWN
        yield "calls", Text(f"… {hidden} before these: see -o json or -o html", style="dim")
    for exchange in exchanges[-_CALLS_SHOWN:]:
        yield "sent", f"{exchange.rpc} {headline(exchange.sent)}"
        took = f"({exchange.seconds * 1000:.0f} ms) "
        yield "came back", Text.assemble((took, "dim"), (headline(exchange.answered), _answer_style(exchange)))


def _answer_style(exchange: Exchange) -> str:
    return "red" if exchange.is_failed else ""


def _unjudged(report: Report) -> Iterator[RenderableType]:
    for result in report.results:
        if result.status is Status.ERROR:
            yield Text.assemble(("COULD NOT BE JUDGED ", _STATUS_STYLES[Status.ERROR]), (result.check, "bold"))
            yield _facts([("what must hold", result.title), ("trouble", result.message), *_calls(result.exchanges)])
            yield Text()


def _listed(report: Report, status: Status, title: str, last: str = "WHY") -> Iterator[RenderableType]:
    found = [result for result in report.results if result.status is status]
    if found:
        rows = [[Text(each.check), Text(" ".join(each.rules)), Text(clean(each.message))] for each in found]
        yield _table(["CHECK", "RULES", last], rows, f"{title} ({len(found)})")


def _left_behind(report: Report) -> Iterator[RenderableType]:
    if report.left_behind:
        yield Text("Left behind: the kit made these machines and could not delete them", style="bold red")
        for machine in report.left_behind:
            yield Text(f"  {headline(machine)}", style="red")
        yield Text()


def _summary(report: Report) -> Iterator[RenderableType]:
    rows = []
    for level in Level:
        results = [result for result in report.results if result.level is level]
        rows.append([Text(level, style=_LEVEL_STYLES[level]), *(_count(results, status) for status in Status)])
    yield _table(["LEVEL", *(status.upper() for status in Status)], rows, "Checks by level")
    started = f"{report.started:%Y-%m-%d %H:%M:%S %Z}".strip()
    yield Text(f"{as_called(report)}, {started}", style="dim")
    style = "bold green" if report.is_passed else "bold red" if report.is_broken else "bold yellow"
    yield Text(conclusion(report), style=style)


def _count(results: Iterable[Result], status: Status) -> Text:
    count = sum(result.status is status for result in results)
    return Text(str(count), style=_STATUS_STYLES[status] if count else "dim")


def _status_style(result: Result) -> str:
    if result.status is Status.FAILED and not is_violation(result):
        return _LEVEL_STYLES[Level.NOTE]
    return _STATUS_STYLES[result.status]


def _facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Names on the left, values on the right."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim", min_width=19, no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(f"  {name}", value if isinstance(value, Text) else Text(clean(value)))
    return made


def _table(headings: Sequence[str], rows: Iterable[Sequence[Text]], title: str) -> Table:
    made = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for column in made.columns:
        column.overflow = "fold"
    for row in rows:
        made.add_row(*row)
    return made


# -- the table of rules: the checks of each rule, or why there is none -------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """One rule and the checks that name it."""

    rule: Rule
    checks: tuple[Check[Any], ...]


def rule_rows(checks: Iterable[Check[Any]], only: Sequence[str] = ()) -> list[RuleRow]:
    """A row for every rule, or for those in `only`, which may name rules and checks."""
    every = tuple(checks)
    found = [RuleRow(rule=rule, checks=tuple(c for c in every if rule.id in c.rules)) for rule in RULES.values()]
    return [row for row in found if not only or {row.rule.id, *(c.name for c in row.checks)} & set(only)]


def rules_view(table: Iterable[RuleRow]) -> Table:
    """For a terminal."""
    made = Table("RULE", "LEVEL", "WHAT IT SAYS", "CHECKS", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in table:
        seen = ", ".join(check.name for check in row.checks) or f"none: {row.rule.unobservable}"
        level = Text(row.rule.level, style=_LEVEL_STYLES[row.rule.level])
        made.add_row(Text(row.rule.id), level, Text(row.rule.title), Text(seen))
    return made


def rules_json(table: Iterable[RuleRow]) -> str:
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
