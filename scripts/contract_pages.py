"""Renders the pages of the contracts: the autoscaler's rules, the drivers' rules, and the checks of both.

The rules are in `cloudgraft.conformance.rules`. Each is a heading of its own, so that its number is a link target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.driver.checks import DRIVER_CHECKS
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.render.table import RuleRow as Row
from cloudgraft.conformance.render.table import rule_rows
from cloudgraft.conformance.rules import Level, Rule

# The first rule of each section.
SECTIONS = {
    "R1": "Refresh, Cleanup and transport",
    "R10": "NodeGroups",
    "R16": "NodeGroupForNode",
    "R25": "NodeGroupTargetSize",
    "R30": "NodeGroupNodes",
    "R43": "NodeGroupIncreaseSize",
    "R49": "NodeGroupDeleteNodes",
    "R59": "NodeGroupDecreaseTargetSize",
    "R65": "NodeGroupTemplateNodeInfo",
    "R73": "NodeGroupGetOptions",
    "R78": "GPUs and prices",
    "R85": "Lifecycle",
    "T1": "Traces",
}
DRIVER_SECTIONS = {
    "D1": "Declarations and responses",
    "D9": "Ownership",
    "D13": "One machine per name",
    "D19": "Interrupted calls",
    "D23": "Deletion and lists",
    "D28": "Errors",
    "D33": "Shapes and prices",
    "D35": "Start and close",
    "D37": "Lost answers",
}
LEVELS = (
    "- **must**: when it is broken, the autoscaler crashes or stops, or machines are lost or bought twice.",
    "- **should**: when it is broken, scaling works, but badly.",
    "- **note**: nothing breaks by itself, but an author does well to know it.",
)


def contract_page() -> str:
    """The autoscaler's contract: every rule R and every trace T."""
    table = rule_rows(CHECKS)
    return "\n".join(
        [
            "# The autoscaler's contract",
            "",
            "The Cluster Autoscaler assumes more of an externalgrpc server than its `.proto` file says. These rules",
            "(R) and traces of calls (T) were read from its sources, releases 1.25 to 1.37. Code, tests and messages",
            "cite them by number. [Judge any server](../how-to/judge-any-server.md) tests a server against them;",
            "[Conformance](conformance.md) describes the checks. The numbers never change. Levels:",
            "",
            *LEVELS,
            "",
            *_sections(SECTIONS),
            *_described([row.rule for row in table], SECTIONS, {row.rule.id: _seen(row) for row in table}),
        ]
    )


def driver_contract_page() -> str:
    """The drivers' contract: every rule D."""
    seen = {
        rule: "".join(f"\n  - `{check.name}`: {check.title}" for check in DRIVER_CHECKS if rule in check.rules)
        for rule in DRIVER_RULES
    }
    return "\n".join(
        [
            "# The drivers' contract",
            "",
            "The engine relies on these rules (D) in every driver, whatever it is written in.",
            "[Test your driver](../how-to/test-your-driver.md) runs the checks. The numbers never change. Levels:",
            "",
            "- **must**: when it is broken, machines are lost, bought twice or wrongly deleted, or the server stalls.",
            "- **should**: when it is broken, the driver works, but badly.",
            "",
            *_sections(DRIVER_SECTIONS),
            *_described(DRIVER_RULES.values(), DRIVER_SECTIONS, seen),
        ]
    )


def conformance_page() -> str:
    """The checks of a server."""
    return "\n".join(
        [
            "# Conformance",
            "",
            "The checks of `cloudgraft conformance`. Each tests some rules of",
            "[the autoscaler's contract](autoscaler-contract.md), which gives their reasons and the levels.",
            "[Judge any server](../how-to/judge-any-server.md) says how to run them.",
            "",
            "## In numbers",
            "",
            *_numbers(CHECKS),
            "",
            "## Checks",
            *_checks(CHECKS),
            "",
        ]
    )


def _sections(sections: Mapping[str, str]) -> Iterator[str]:
    yield "| section | from |"
    yield "|---|---|"
    for first, title in sections.items():
        yield f"| {title} | [{first}](#{first.lower()}) |"
    yield ""


def _described(rules: Iterable[Rule], sections: Mapping[str, str], seen: Mapping[str, str]) -> Iterator[str]:
    for rule in rules:
        if rule.id in sections:
            yield from (f"## {sections[rule.id]}", "")
        yield from (f"### {rule.id}", "")
        yield from (f"**{rule.title}.** ({rule.level})", "")
        yield f"- If it is broken: {_linked(rule.why)}"
        yield f"- What to do: {_linked(rule.fix)}"
        yield f"- Checks:{seen[rule.id]}"
        yield ""


def _linked(text: str) -> str:
    """Numbers of other rules as links; a rule cites only rules of its own page."""
    return re.sub(r"\b[RTD]\d+\b", lambda found: f"[{found[0]}](#{found[0].lower()})", text)


def _seen(row: Row) -> str:
    linked = ", ".join(f"[{check.name}](conformance.md#{check.name})" for check in row.checks)
    return f" {linked}" if linked else f" none. {row.rule.unobservable}"


def _numbers(checks: Sequence[Check[Any]]) -> Iterator[str]:
    table = rule_rows(checks)
    yield "| level | rules and traces | with a check | not to be seen from outside | checks |"
    yield "|---|---|---|---|---|"
    for level in Level:
        found = [row for row in table if row.rule.level is level]
        own = sum(check.level is level for check in checks)
        yield f"| {level} | {len(found)} | {_with(found)} | {len(found) - _with(found)} | {own} |"
    yield f"| all | {len(table)} | {_with(table)} | {len(table) - _with(table)} | {len(checks)} |"


def _with(table: Iterable[Row]) -> int:
    return sum(bool(row.checks) for row in table)


def _checks(checks: Sequence[Check[Any]]) -> Iterator[str]:
    for check in checks:
        yield ""
        yield f"### {check.name}"
        yield ""
        yield check.title
        yield ""
        cited = ", ".join(f"[{rule}](autoscaler-contract.md#{rule.lower()})" for rule in check.rules)
        yield f"- level: {check.level}; rules: {cited}"
        if check.after:
            yield f"- blocked unless these passed: {', '.join(check.after)}"
        if check.needs:
            yield f"- needs in `kit.yaml`: {', '.join(f'`{need.value}`' for need in check.needs)}"
        if check.since:
            yield f"- from release {check.since} on"
