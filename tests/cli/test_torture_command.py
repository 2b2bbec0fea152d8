"""`cloudgraft torture` as it is typed: refusals, exit codes, an interruption, and drivers that are programs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.cli.torture import command
from tests.torture.rig import STRANGER, World, simulated

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(one) for one in arguments])
    return result.exit_code, result.output


def test_nobody_to_ask_is_wrong_usage(tmp_path: Path) -> None:
    code, output = run("-c", tmp_path / "cloudgraft.yaml")
    assert code == 2
    assert "say --yes" in output


def test_a_cloud_inside_the_server_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "cloudgraft.yaml"
    group = {"id": "small", "cloud": "sim", "maxSize": 2, "machine": {"shape": "small"}}
    file.write_text(json.dumps({"cluster": "c", "clouds": {"sim": {"driver": "simulated"}}, "nodeGroups": [group]}))
    code, output = run("-c", file, "--yes")
    assert (code, list(tmp_path.iterdir())) == (2, [file])
    assert "start `cloudgraft simcloud`" in output
    assert "Nothing was changed." in output


def test_a_cloud_that_cannot_be_listed_cannot_be_judged(tmp_path: Path) -> None:
    with simulated(tmp_path, World(chaos={"list": {"errors": 1.0}})) as (_, file):
        code, output = run("-c", file, "--yes")
    assert code == 3
    assert "the cloud cannot be listed" in output


def _torture(file: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cloudgraft.cli", "torture", "-c", str(file), "--yes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.thorough
@pytest.mark.timeout(480)
def test_an_interruption_deletes_what_was_made(tmp_path: Path) -> None:
    with simulated(tmp_path, World()) as (cloud, file):
        process = _torture(file, "--kills", "50")
        assert process.stderr is not None
        while "kill 2 of" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 128 + signal.SIGINT
        assert "All machines of this run are deleted." in output
        assert [machine.name for machine in cloud.machines()] == [STRANGER.name]


@pytest.mark.thorough
@pytest.mark.timeout(480)
@pytest.mark.parametrize("script", ["lab.sh", "lab.py"])
def test_the_example_scripts_hold(tmp_path: Path, script: str) -> None:
    for name in ("labctl", script):
        shutil.copy(EXAMPLES / "exec" / name, tmp_path)
    file = tmp_path / "cloudgraft.yaml"
    cloud = {
        "driver": "exec",
        **{verb: [f"./{script}", verb] for verb in ("create", "delete", "list")},
        "idempotency": "unique_name",
        "env": {"LABCTL_HOME": str(tmp_path / "lab")},
        "engine": {"observeEvery": "300ms", "createTimeout": "5s"},
    }
    template = {"capacity": {"cpu": "2", "memory": "4Gi"}}
    group = {"id": "lab", "cloud": "lab", "maxSize": 3, "machine": {"size": "small"}, "template": template}
    file.write_text(json.dumps({"cluster": "c", "clouds": {"lab": cloud}, "nodeGroups": [group]}))
    process = _torture(file, "--kills", "6", "--seed", "5", "--patience", "60s", "-o", "json")
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, output + errors
    report = json.loads(output)
    assert (report["verdict"], report["kills"]["done"], report["directory"]) == ("held", 6, None)
    assert report["machines"]["made"] > 0
    assert list((tmp_path / "lab" / "machines").iterdir()) == []
