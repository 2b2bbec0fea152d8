"""Reads the alerts and the dashboard of the chart: rules, queries, and the metrics that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FILES: Final = ROOT / "deploy/helm/cloudgraft/files"
RULES: Final = FILES / "alerts.yaml"
DASHBOARD: Final = FILES / "dashboards/cloudgraft.json"

_MINUTES: Final = re.compile(r"\b(\d+)m\b")
_METRIC: Final = re.compile(r"\b(cloudgraft_\w+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def alerts(document: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The alerts, in the order of the file."""
    groups = (document or yaml.safe_load(RULES.read_text()))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def minutes_as_seconds() -> dict[str, Any]:
    """The rules with each minute made a second, so that a run needs no real minutes.

    Durations such as ``5m`` are ranges and ``for``; ``15 * 60`` is a limit of a metric that counts seconds. All of them
    shrink together, so a rule compares the same things as before. Days are left: a certificate can be made for one.
    """
    document: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        group["interval"] = "1s"
    for rule in alerts(document):
        rule["expr"] = _MINUTES.sub(r"\1s", rule["expr"]).replace("* 60", "* 1")
        if "for" in rule:
            rule["for"] = _MINUTES.sub(r"\1s", rule["for"])
    return document


@dataclass(frozen=True)
class Query:
    """One query of the dashboard."""

    panel: str
    expr: str

    def with_range(self, seconds: int) -> str:
        """The query as Grafana sends it, with values for its variables."""
        expr = self.expr.replace("$__rate_interval", f"{seconds}s").replace("$__range", f"{seconds}s")
        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", ".*", expr)


def queries() -> list[Query]:
    """All queries of the dashboard's panels."""
    document = json.loads(DASHBOARD.read_text())
    return [Query(panel["title"], target["expr"]) for panel in _panels(document) for target in panel.get("targets", ())]


def _panels(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in document["panels"]:
        yield panel
        yield from panel.get("panels", ())


def named_metrics(expr: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics in an expression, each with the labels that its selector names."""
    for match in _METRIC.finditer(expr):
        yield match[1], set(_MATCHER.findall(match[2] or ""))


def grouping_labels(expr: str) -> set[str]:
    """The labels that an expression groups or joins by."""
    return {label.strip() for found in _GROUPED.findall(expr) for label in found.split(",") if label.strip()}
