"""`cloudgraft deploy render` from the outside: what it writes, where, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.cli.deploy import command
from cloudgraft.cli.serve import command as serve
from cloudgraft.config import ConfigError

CONFIG = """\
cluster: prod
clouds:
  hz: {driver: hetzner, tokenFile: secrets/token, location: fsn1}
nodeGroups: [{id: a, cloud: hz, maxSize: 3, machine: {shape: cx23, image: ubuntu-24.04}}]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cloudgraft.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def render(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["render", *arguments])


@pytest.mark.usefixtures("here")
def test_values_go_to_standard_output_and_what_is_to_be_done_to_standard_error() -> None:
    result = render("--image", "registry.example:5000/cloudgraft", "--autoscaler-release", "1.35")
    assert result.exit_code == 0, result.output
    values = yaml.safe_load(result.stdout)
    assert values["image"] == {"repository": "registry.example:5000/cloudgraft"}
    assert values["autoscaler"] == {"release": "1.35.0"}
    assert "# clouds.hz.tokenFile\n" in result.stdout
    assert result.stderr.splitlines()[-3:] == [
        "Create what it needs, and install it:",
        "  kubectl -n kube-system create secret generic cloudgraft-hz --from-file=token=secrets/token",
        "  helm install cloudgraft deploy/helm/cloudgraft --namespace kube-system --values values.yaml",
    ]


@pytest.mark.usefixtures("here")
def test_json_has_the_same_values() -> None:
    assert json.loads(render("-o", "json").stdout) == yaml.safe_load(render().stdout)


def test_a_file_that_is_there_is_not_replaced_without_force(here: Path) -> None:
    (here / "values.yaml").write_text("mine")
    refused = render("--to", "values.yaml")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "values.yaml is there already" in refused.stderr
    assert (here / "values.yaml").read_text() == "mine"
    assert render("--to", "values.yaml", "--force").exit_code == 0
    assert yaml.safe_load((here / "values.yaml").read_text())["server"]["cluster"] == "prod"


def test_a_wrong_file_is_reported_as_serve_check_reports_it(here: Path) -> None:
    (here / "secrets").mkdir()
    (here / "secrets" / "token").write_text("t" * 64)
    wrong = CONFIG.replace("location: fsn1", "lokation: fsn1").replace("maxSize: 3", "maxSize: no")
    (here / "cloudgraft.yaml").write_text(wrong)
    checked = CliRunner().invoke(serve, ["--config", "cloudgraft.yaml", "--check"])
    refused = render()
    assert isinstance(refused.exception, ConfigError)
    assert f"error: {refused.exception}\n" == checked.stderr
    assert "lokation: unknown key" in checked.stderr
    assert refused.stdout == ""


@pytest.mark.usefixtures("here")
def test_files_that_are_missing_on_this_host_are_no_error() -> None:
    assert CliRunner().invoke(serve, ["--config", "cloudgraft.yaml", "--check"]).exit_code == 1
    assert render().exit_code == 0


def test_manifests_need_helm_and_the_chart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no chart at deploy/helm/cloudgraft" in render("--manifests").stderr
    chart = Path(__file__).parents[2] / "deploy" / "helm" / "cloudgraft"
    monkeypatch.setenv("PATH", str(here))
    refused = render("--manifests", "--chart", str(chart))
    assert refused.exit_code == 1
    assert "helm is not in PATH" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--autoscaler-release", "1.24"), "a release from 1.25 to 1.37"),
        (("--name", "Edge"), "lower-case letters"),
        (("--certificates", "mine"), "certManager"),
        (("--force",), "--force goes with --to"),
        (("--manifests", "-o", "json"), "-o json is for values"),
    ],
)
@pytest.mark.usefixtures("here")
def test_wrong_options_are_refused(arguments: tuple[str, ...], said: str) -> None:
    result = render(*arguments)
    assert result.exit_code == 2
    assert said in re.sub(r"\s+", " ", result.output)
