"""`cloudgraft deploy render` for every configuration of the documentation and of the examples.

`make e2e-chart` has the real helm render the same values.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.cli import deploy
from cloudgraft.config import ConfigError
from cloudgraft.deploy.draft import Choices
from cloudgraft.deploy.pod import pod_content
from cloudgraft.deploy.render import Rendering
from cloudgraft.deploy.text import dumped
from e2e.chart import pod_files
from e2e.chart.examples import Example, examples, rendering_of
from e2e.helm import CHART
from tests.deploy.rendering import SCHEMA

EXAMPLES = list(examples())


def test_there_are_many_examples() -> None:
    assert len([one for one in EXAMPLES if not one.refusal]) > 30


@pytest.mark.parametrize("example", EXAMPLES, ids=[one.name for one in EXAMPLES])
def test_its_values_fit_the_schema_and_its_files_are_mounted(example: Example, tmp_path: Path) -> None:
    if example.refusal:
        with pytest.raises(ConfigError, match=re.escape(example.refusal)):
            rendering_of(example, tmp_path, Choices())
        return
    try:
        rendering = rendering_of(example, tmp_path, Choices())
    except ConfigError as error:
        if example.may_lack_library and example.may_lack_library in str(error):
            pytest.skip(str(error))
        raise
    values = yaml.safe_load(rendering.text("cloudgraft.yaml", Choices()))
    assert values == rendering.values
    SCHEMA.validate(values)
    assert list(pod_files.problems(content_of(rendering), rendering, mounts_of(rendering), tmp_path)) == []


def content_of(rendering: Rendering) -> str:
    """The configuration in the pod, as the chart is expected to write it; `make e2e-chart` compares the two."""
    values: dict[str, Any] = json.loads(json.dumps(rendering.values))
    own = yaml.safe_load(values["server"].pop("config"))
    if "config" in values.get("dock", {}):
        values["dock"]["config"] = yaml.safe_load(values["dock"]["config"])
    return dumped(pod_content(values, own))


def mounts_of(rendering: Rendering) -> dict[str, str]:
    """The directories of the pod: those of the chart, and those of the values."""
    server = rendering.values["server"]
    own = {f"/etc/cloudgraft/{one['as']}": one.get("secret") or one["configMap"] for one in server.get("mounts", ())}
    charts = {"config": "cloudgraft", "tls": "cloudgraft-server-tls"}
    if server["mode"] == "replicas":
        charts["db"] = server["postgresql"]["secret"]
    return {**own, **{f"/etc/cloudgraft/{name}": source for name, source in charts.items()}, "/var/lib/cloudgraft": ""}


def test_releases_are_those_of_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    pattern = schema["properties"]["autoscaler"]["properties"]["release"]["pattern"]
    for minor in range(20, 45):
        assert bool(re.fullmatch(pattern, f"1.{minor}.0")) == bool(deploy._RELEASE.fullmatch(f"1.{minor}"))


def test_a_file_without_its_mount_is_found(tmp_path: Path) -> None:
    example = next(one for one in EXAMPLES if one.name == "docs/how-to/use-proxmox.md: cloudgraft.yaml")
    rendering = rendering_of(example, tmp_path, Choices())
    mounts = mounts_of(rendering)
    del mounts["/etc/cloudgraft/lab"]
    found = list(pod_files.problems(content_of(rendering), rendering, mounts, tmp_path))
    assert found
    assert all("/etc/cloudgraft/lab/" in one and one.endswith(" is not mounted") for one in found)
