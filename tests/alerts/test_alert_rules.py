"""Rules, dashboard and runbook fit together, and name only metrics and labels that cloudgraft exports."""

from __future__ import annotations

import json
import re

import click
import pytest

from cloudgraft.cli.main import cloudgraft
from scripts.metrics_page import exported_metrics
from tests.alerts.faults import SCENARIOS
from tests.alerts.rules import DASHBOARD, ROOT, alerts, grouping_labels, minutes_as_seconds, named_metrics, queries

RUNBOOK = ROOT / "docs/reference/alerts.md"
_OF_PROMETHEUS = {"job", "instance", "namespace", "pod"}  # labels that a scrape adds
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def exported() -> dict[str, set[str]]:
    """Every series that a scrape may return, with its labels."""
    found: dict[str, set[str]] = {}
    for family in exported_metrics():
        for suffix in _SUFFIXES[family.kind]:
            more = {"le"} if suffix == "_bucket" else set()
            found[f"{family.name}{suffix}"] = {*family.labels, *more, *_OF_PROMETHEUS}
    return found


EXPRESSIONS = [*((rule["alert"], rule["expr"]) for rule in alerts()), *((one.panel, one.expr) for one in queries())]


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_exist(name: str, expr: str) -> None:
    known, named = exported(), list(named_metrics(expr))
    assert named, f"{name} names no metric"
    for metric, labels in named:
        assert metric in known, f"{name}: cloudgraft exports no {metric}"
        assert labels <= known[metric], f"{name}: {metric} has no label {labels - known[metric]}"
    in_all = set.union(*(known[metric] for metric, _ in named))
    assert grouping_labels(expr) <= in_all, f"{name} groups by {grouping_labels(expr) - in_all}"


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_texts_of_an_alert_name_labels_that_its_expression_keeps(rule: dict[str, object]) -> None:
    expr = str(rule["expr"])
    kept = grouping_labels(expr) or set.union(*(exported()[metric] for metric, _ in named_metrics(expr)))
    assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= kept


def test_every_alert_has_a_section_of_the_runbook_and_every_section_an_alert() -> None:
    sections = re.findall(r"^## (Cloudgraft\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    names = [rule["alert"] for rule in alerts()]
    assert sections == names
    for rule in alerts():
        text = rule["annotations"]
        assert set(text) == {"summary", "description", "runbook"}
        assert text["runbook"] == f"docs/reference/alerts.md#{rule['alert'].lower()}"


def test_every_section_of_the_runbook_says_what_to_look_at_and_what_to_do() -> None:
    for section in RUNBOOK.read_text().split("\n## ")[1:]:
        name = section.split("\n", 1)[0]
        for part in ("**Look at**", "**Do**"):
            assert part in section, f"{name} lacks {part}"
        assert "```sh\n" in section, f"{name} names no command"


def test_every_alert_has_a_scenario_that_must_fire_it() -> None:
    fired = set().union(*(scenario.fires for scenario in SCENARIOS)) | {"CloudgraftAbsent"}
    assert fired == {rule["alert"] for rule in alerts()}


def test_the_derived_copy_has_no_minutes_left() -> None:
    for rule in alerts(minutes_as_seconds()):
        assert not re.search(r"\d+m\b|\* 60\b", f"{rule['expr']} {rule.get('for', '')}"), rule["alert"]


def test_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def _commands() -> list[list[str]]:
    found = re.findall(r"^cloudgraft (.+)$", RUNBOOK.read_text(), re.MULTILINE)
    return [line.split() for line in found]


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_a_command_of_the_runbook_has_these_words_and_options(words: list[str]) -> None:
    command: click.Command = cloudgraft
    context = click.Context(cloudgraft)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest.pop(0))
        assert found is not None, words
        command = found
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= options
