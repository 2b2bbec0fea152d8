"""`cloudgraft torture` as it is typed: refusals, exit codes, an interruption, and drivers that are programs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.cli.torture import command
from cloudgraft.torture import leftovers
from tests.drivers.http.receiver_process import ReceiverProcess
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


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs make their directories; tmp_path is too long for their sockets."""
    with tempfile.TemporaryDirectory(prefix="cg") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", None)  # the variable is read once
        yield Path(directory)


@pytest.mark.thorough
@pytest.mark.timeout(480)
def test_a_run_that_was_killed_is_named_by_the_next_one_and_cleaned_up(tmp_path: Path, runs: Path) -> None:
    with simulated(tmp_path, World()) as (cloud, file):
        process = _torture(file, "--kills", "50")
        while len(cloud.machines()) < 2:
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=60)
        (directory,) = runs.iterdir()
        (killed,) = leftovers.unfinished(runs)
        assert killed.directory == directory
        _, output = run("-c", tmp_path / "missing.yaml", "--yes")
        assert f"cloudgraft torture --clean-up {directory}" in output
        assert all(name in output for name in killed.machines)
        assert run("--clean-up", directory) == (0, "All machines of that run are deleted, and so is its directory.\n")
        assert [machine.name for machine in cloud.machines()] == [STRANGER.name]
    assert list(runs.iterdir()) == []


def test_only_the_directory_of_a_run_is_cleaned_up(tmp_path: Path) -> None:
    code, output = run("--clean-up", tmp_path)
    assert (code, "is not the directory of a run" in output) == (2, True)


@pytest.mark.thorough
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("world", "arguments", "says"),
    [
        (World(cloud={"quota": 1}), ["--kills", "2", "--patience", "10s"], "the cloud made no machine at all"),
        (World(), ["--kills", "1000", "--minutes", "0.1"], "of 1000 kills, which proves too little"),
    ],
    ids=["no room", "no time"],
)
def test_a_run_that_proves_too_little_is_no_success(
    tmp_path: Path, world: World, arguments: list[str], says: str
) -> None:
    with simulated(tmp_path, world) as (cloud, file):
        process = _torture(file, *arguments, "-o", "json")
        output, errors = process.communicate(timeout=400)
        assert process.returncode == 3, output + errors
        assert [machine.name for machine in cloud.machines()] == [STRANGER.name]
    report = json.loads(output)
    assert (report["verdict"], report["violations"]) == ("inconclusive", [])
    assert says in report["trouble"]


@pytest.mark.thorough
@pytest.mark.timeout(480)
def test_a_driver_behind_three_http_endpoints_holds(tmp_path: Path) -> None:
    """The receiver is a program of its own, with pages and idempotent creates; it is not killed with the server."""
    with ReceiverProcess(tmp_path, None, "--page-size", "3") as receiver:
        file = tmp_path / "cloudgraft.yaml"
        cloud = {"driver": "http", "url": receiver.url, "engine": {"observeEvery": "300ms", "createTimeout": "5s"}}
        group = {"id": "web", "cloud": "web", "maxSize": 3, "machine": {"shape": "small"}}
        file.write_text(json.dumps({"cluster": "c", "clouds": {"web": cloud}, "nodeGroups": [group]}))
        process = _torture(file, "--kills", "6", "--seed", "5", "--patience", "60s", "-o", "json")
        output, errors = process.communicate(timeout=400)
        assert process.returncode == 0, output + errors
        report = json.loads(output)
        assert (report["verdict"], report["kills"]["done"]) == ("held", 6)
        assert report["machines"]["made"] > 0
        assert receiver.ask("GET", "/machines")[1]["machines"] == []
