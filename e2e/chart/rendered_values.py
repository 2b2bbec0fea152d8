"""Has the real helm render what `cloudgraft deploy render` writes for every configuration of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from cloudgraft.config import ConfigError
from cloudgraft.deploy.draft import Choices
from cloudgraft.deploy.pod import pod_content
from cloudgraft.deploy.render import Rendering
from e2e.chart import objects, pod_files
from e2e.chart.examples import Example, examples, rendering_of
from e2e.helm import CHART, Helm, HelmError
from e2e.modules import NEWEST_CONTROL_PLANE

__all__ = ["problems"]

_PAGE: Final = "deploy-to-kubernetes"
_CHOICES: Final = Choices(
    name="edge",
    namespace="kube-system",
    certificates="job",
    autoscaler_release="1.35.0",
    image="registry.example:5000/cloudgraft:0.2.0",
)


def problems(helm: Helm, directory: Path) -> Iterator[str]:
    """One line for each that is wrong."""
    for example in examples():
        with tempfile.TemporaryDirectory(dir=directory) as work:
            for problem in _of_example(helm, example, Path(work)):
                yield f"{example.name}: {problem}"
    yield from _manifests(helm, next(one for one in examples() if _PAGE in one.name), directory)


def _of_example(helm: Helm, example: Example, work: Path) -> Iterator[str]:
    try:
        rendering = rendering_of(example, work, _CHOICES)
    except ConfigError as error:
        wanted = example.refusal or example.may_lack_library
        if not wanted or wanted not in str(error):
            yield str(error)
        return
    if example.refusal:
        yield "is not refused"
        return
    yield from _rendered(helm, rendering, work)


def _rendered(helm: Helm, rendering: Rendering, work: Path) -> Iterator[str]:
    # By way of the text, as a user has it, comments and all.
    values = yaml.safe_load(rendering.text("cloudgraft.yaml", _CHOICES))
    try:
        made = [one for one in yaml.safe_load_all(helm.template_of(values)) if one]
    except HelmError as error:
        yield str(error)
        return
    yield from objects.problems(made, has_certificates=True)
    texts = [one["data"]["cloudgraft.yaml"] for one in made if one["kind"] == "ConfigMap" and _has_config(one)]
    (text,) = texts
    server = {**values["server"]}
    own = yaml.safe_load(server.pop("config"))
    parsed = {**values, "server": server}
    if "config" in values.get("dock", {}):
        parsed["dock"] = {**values["dock"], "config": yaml.safe_load(values["dock"]["config"])}
    if yaml.safe_load(text) != pod_content(parsed, own):
        yield "the chart writes another configuration than the one that was checked"
    mounts = pod_files.mounted_directories(made, _CHOICES.name)
    yield from pod_files.problems(text, rendering, mounts, work)


def _manifests(helm: Helm, example: Example, directory: Path) -> Iterator[str]:
    """What is wrong with `--manifests`, which has the helm in PATH render the same values."""
    path = directory / "cloudgraft.yaml"
    path.write_text(example.text, "utf-8")
    release = f"{NEWEST_CONTROL_PLANE}.0"
    command = [sys.executable, "-m", "cloudgraft.cli", "deploy", "render", "--config", str(path), "--manifests"]
    done = subprocess.run(
        [*command, "--chart", str(CHART), "--autoscaler-release", release],
        env={**os.environ, "PATH": f"{helm.binary.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    values = rendering_of(example, directory, Choices(autoscaler_release=release)).values
    if done.returncode or done.stdout != helm.template_of(values):
        yield f"--manifests ended with {done.returncode}, or with others than those of its values: {done.stderr}"


def _has_config(config_map: object) -> bool:
    return isinstance(config_map, dict) and "cloudgraft.yaml" in config_map.get("data", {})
