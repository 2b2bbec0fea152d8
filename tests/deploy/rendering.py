"""Renders values for a configuration that stands in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from cloudgraft.deploy.draft import Choices
from cloudgraft.deploy.render import Rendering
from e2e.chart.examples import Example, rendering_of
from e2e.helm import CHART

SCHEMA = jsonschema_rs.Draft7Validator(json.loads((CHART / "values.schema.json").read_text("utf-8")))
SIM = "cluster: prod\nclouds: {sim: {driver: simulated, url: 'http://sim.example:9400'}}\n"
GROUP = "nodeGroups: [{id: a, cloud: sim, maxSize: 3, machine: {shape: small}}]\n"


def rendered(directory: Path, text: str, **choices: str) -> Rendering:
    """What becomes of a configuration; its values satisfy the chart's schema."""
    chosen = Choices(**choices)
    rendering = rendering_of(Example(name="test", text=text), directory, chosen)
    values = yaml.safe_load(rendering.text("cloudgraft.yaml", chosen))
    assert values == rendering.values
    SCHEMA.validate(values)
    return rendering


def own(rendering: Rendering) -> dict[str, Any]:
    """The part of the pod's configuration that the chart takes from `server.config`."""
    content: dict[str, Any] = yaml.safe_load(rendering.values["server"]["config"])
    return content


def warnings(rendering: Rendering) -> list[str]:
    return [one.text for one in rendering.remarks if one.is_warning]


def commands(rendering: Rendering, here: Path) -> list[str]:
    return [one.command("kube-system", here) for one in rendering.objects]
