"""Every combination of the modes that the chart's schema names, and which of them it has to refuse."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from e2e.helm import CHART

__all__ = ["Combination", "combinations", "covering", "of_the_page"]

Values = dict[str, Any]
_DOCK: Final = {
    "drivers": [{"name": "acme", "kind": "Acme", "apiVersion": "acme.example/v1", "clientNames": ["acme-driver"]}],
    "classes": {"small": {"kind": "Acme", "apiVersion": "acme.example/v1"}},
}
_PARTS: Final[Values] = {
    "image": {"pullPolicy": "Always"},
    "nodeManager": {"enabled": True},
    "discovery": {"enabled": True, "hosts": ["*.discovery.example", "192.0.2.7", "2001:db8::7"]},
    "agent": {"enabled": True},
    "simcloud": {"enabled": True, "options": {"bootTime": "1s"}},
    "liqo": {"consumer": ["nodeManager"], "provider": "turin"},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
_PAGE: Final = CHART.parents[2] / "docs" / "how-to" / "deploy-to-kubernetes.md"
_BLOCK: Final = re.compile(r"^```yaml\n(image:.*?)^```$", re.MULTILINE | re.DOTALL)
_REPLICAS: Final = {"postgresql": {"address": "db.example/cloudgraft"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Values, and the beginning of the message with which they are refused; empty if they must be rendered."""

    name: str
    modes: frozenset[str]
    values: Values
    refusal: str


def combinations() -> Iterator[Combination]:
    """All of them: each mode with each other one, alone and with all other parts switched on."""
    modes = _modes()
    for chosen in itertools.product(*modes.values()):
        for has_parts in (False, True):
            by_section = dict(zip(modes, chosen, strict=True))
            parts = f"{'all' if has_parts else 'no'} other parts"
            names = [*(f"{section} {mode}" for section, mode in by_section.items()), parts]
            yield Combination(
                name=", ".join(names),
                modes=frozenset(names),
                values=_values(by_section, has_parts=has_parts),
                refusal=_refusal(by_section, has_parts=has_parts),
            )


def covering() -> Iterator[Combination]:
    """As few of those that must be rendered as have every mode at least once."""
    cases = [one for one in combinations() if not one.refusal]
    missing = frozenset[str]().union(*(one.modes for one in cases))
    while missing:
        best = max(cases, key=lambda one: len(one.modes & missing))
        missing -= best.modes
        yield best


def of_the_page() -> Combination:
    """The values that the page about the chart shows."""
    (text,) = _BLOCK.findall(_PAGE.read_text("utf-8"))
    values = yaml.safe_load(text)
    return Combination(name="the values of the page", modes=frozenset(), values=values, refusal="")


def _modes() -> Mapping[str, tuple[str, ...]]:
    """What the schema allows as `mode`, by the section that has it."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    sections = {name: one.get("properties", {}) for name, one in schema["properties"].items()}
    return {name: tuple(keys["mode"]["enum"]) for name, keys in sections.items() if "mode" in keys}


def _values(modes: Mapping[str, str], *, has_parts: bool) -> Values:
    values: Values = {section: {"mode": mode} for section, mode in modes.items()}
    values["dock"]["config"] = _DOCK
    if modes["server"] == "replicas":
        values["server"] |= _REPLICAS
    return {**values, **_PARTS} if has_parts else values


def _refusal(modes: Mapping[str, str], *, has_parts: bool) -> str:
    server, autoscaler, dock = modes["server"], modes["autoscaler"], modes["dock"]
    if server == "sidecar" and autoscaler != "own":
        return "server.mode sidecar needs autoscaler.mode own"
    if server == "sidecar" and dock == "server":
        return "server.mode sidecar has no dock of its own"
    if server == "none" and dock == "server":
        return "dock.mode server needs a server"
    if server == "none" and autoscaler != "none":
        return "server.mode none needs autoscaler.mode none"
    if server == "none" and dock == "none" and not has_parts:
        return "nothing is switched on"
    return ""
