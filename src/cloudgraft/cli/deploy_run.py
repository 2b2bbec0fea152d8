"""Runs `cloudgraft deploy render`: reads the configuration, and writes values or manifests."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from cloudgraft.app import logs
from cloudgraft.app.check import check_file
from cloudgraft.cli.terminal import clean, fail
from cloudgraft.config import ConfigError
from cloudgraft.deploy.draft import CHART, Choices
from cloudgraft.deploy.render import Rendering, render

_HELM_SECONDS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is written, and where."""

    to: Path | None  # None: standard output
    force: bool
    is_json: bool
    chart: Path | None  # of manifests; None: values are written


def run(path: Path, choices: Choices, target: Target) -> None:
    """Writes values or manifests, and says on standard error what is left to do."""
    if target.to is not None and target.to.exists() and not target.force:
        fail(f"{target.to} is there already", hint="--force replaces it")
    logs.configure(1, "console")  # it hides secrets, also in the traceback of a driver with a bug
    checked = check_file(path, needs_host=False)
    if checked.config is None or checked.problems:
        raise ConfigError(checked.problems)
    rendering = render(checked.config, choices)
    text = rendering.text(str(path), choices)
    if target.chart is not None:
        text = _manifests(text, choices, target.chart)
    elif target.is_json:
        text = json.dumps(rendering.values, indent=2, ensure_ascii=False) + "\n"
    if target.to is not None:
        try:
            with target.to.open("w" if target.force else "x", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            fail(f"cannot write {target.to}: {error.strerror}")
    _tell(rendering, choices, target)
    if target.to is None:
        click.echo(text, nl=False)


def _manifests(values: str, choices: Choices, chart: Path) -> str:
    if not (chart / "Chart.yaml").is_file():
        fail(f"there is no chart at {chart}", hint=f"--chart DIRECTORY; in the source tree it is {CHART}")
    helm = shutil.which("helm")
    if helm is None:
        fail("helm is not in PATH, and makes the manifests", hint="install helm, or leave out --manifests for values")
    command = [helm, "template", choices.name, str(chart), "--namespace", choices.namespace, "--values", "-"]
    if choices.autoscaler_release:
        command += ["--kube-version", choices.autoscaler_release]  # that of the cluster, whose features the chart uses
    try:
        done = subprocess.run(command, input=values, capture_output=True, text=True, timeout=_HELM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        fail(f"helm has not ended after {_HELM_SECONDS}s")
    if done.returncode:
        fail(f"helm refused the values: {done.stderr.strip()}")
    return done.stdout


def _tell(rendering: Rendering, choices: Choices, target: Target) -> None:
    """Says on standard error what was decided, and what has to be done before the release works."""
    for remark in rendering.remarks:
        _say(f"{'warning' if remark.is_warning else 'note'}: {clean(remark.text)}")
    if rendering.dockerfile:
        _say("An image on top of cloudgraft's, beside the configuration; give its name with --image:")
        for line in rendering.dockerfile:
            _say(f"  {clean(line)}")
    here = Path.cwd()
    commands = [one.command(choices.namespace, here) for one in rendering.objects]
    if target.chart is not None:
        commands.append(f"kubectl -n {choices.namespace} apply -f {_shown(target.to, 'manifests.yaml')}")
    else:
        values = _shown(target.to, "values.yaml")
        commands.append(f"helm install {choices.name} {CHART} --namespace {choices.namespace} --values {values}")
    _say("Create what it needs, and install it:")
    for command in commands:
        _say(f"  {clean(command)}")


def _shown(to: Path | None, usual: str) -> str:
    return shlex.quote(str(to)) if to is not None else usual


def _say(line: str) -> None:
    click.echo(line, err=True)
