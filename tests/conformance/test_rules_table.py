"""The table of rules is whole: every rule of the contract is there, once, and somebody looks after it."""

from __future__ import annotations

import json
import re

import pytest

from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.render.table import rule_rows, rules_json
from cloudgraft.conformance.rules import RULES, THEMES, Level, Rule
from scripts.contract_pages import conformance_page

NAMED = {rule for check in CHECKS for rule in check.rules}


def test_every_rule_and_trace_is_there_in_order() -> None:
    assert list(RULES) == [*(f"R{number}" for number in range(1, 91)), *(f"T{number}" for number in range(1, 11))]


def test_no_rule_is_written_twice() -> None:
    """A rule in two themes would hide one of them."""
    written = [id_ for theme in THEMES for id_ in theme]
    assert sorted(written) == sorted(RULES)
    titles = [rule.title for rule in RULES.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_looked_at_or_says_why_nothing_can(rule: Rule) -> None:
    assert (rule.id in NAMED) is not bool(rule.unobservable)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_written_in_whole_sentences(rule: Rule) -> None:
    assert re.fullmatch(r"[^\s.][^\n|]*[^\s.]", rule.title)
    for text in filter(None, (rule.why, rule.fix, rule.unobservable)):
        assert re.fullmatch(r"[A-Z0-9][^\n|]*\.", text)
    assert rule.why
    assert rule.fix
    cited = re.findall(r"\b[RT]\d+", f"{rule.title} {rule.why} {rule.fix} {rule.unobservable}")
    assert [each for each in cited if each not in RULES] == []


def test_checks_name_only_rules_that_exist() -> None:
    assert set(RULES) >= NAMED


@pytest.mark.parametrize("trace", [f"T{number}" for number in range(1, 11)])
def test_every_trace_is_replayed(trace: str) -> None:
    assert trace in NAMED


def test_every_must_is_looked_at() -> None:
    """What crashes the autoscaler or loses machines must not go unseen."""
    assert [rule.id for rule in RULES.values() if rule.level is Level.MUST and rule.id not in NAMED] == []


def test_the_table_has_a_row_per_rule_and_can_be_narrowed() -> None:
    assert [row.rule.id for row in rule_rows(CHECKS)] == list(RULES)
    assert [row.rule.id for row in rule_rows(CHECKS, ["R49", "T6"])] == ["R49", "T6"]
    check = CHECKS[0]
    assert {row.rule.id for row in rule_rows(CHECKS, [check.name])} == set(check.rules)


def test_the_table_as_json_has_the_checks_of_each_rule() -> None:
    data = {row["rule"]: row for row in json.loads(rules_json(rule_rows(CHECKS)))}
    assert data["R14"]["checks"] == []
    assert data["R14"]["unobservable"] == RULES["R14"].unobservable
    named = {rule: [check.name for check in CHECKS if rule in check.rules] for rule in RULES}
    assert {rule: [check["name"] for check in row["checks"]] for rule, row in data.items()} == named


def test_the_numbers_of_the_page_add_up() -> None:
    numbers = conformance_page().partition("## In numbers")[2].splitlines()[4:8]
    rows = [line.split("|") for line in numbers]
    must, should, note, every = [[int(cell) for cell in row[2:6]] for row in rows]
    assert [sum(column) for column in zip(must, should, note, strict=True)] == every
    assert every[0] == every[1] + every[2] == len(RULES)
    assert every[3] == len(CHECKS)
