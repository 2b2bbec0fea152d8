"""The parts of ``make e2e-first-node`` that need neither Go nor root."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.first_node import kubectl
from e2e.first_node.__main__ import main
from e2e.first_node.images import images
from e2e.first_node.page import release
from e2e.modules import AUTOSCALERS


def test_an_ordinary_user_is_told_that_it_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 3
    assert "not run: only root can" in done.output


def test_the_page_names_a_release_that_can_be_built() -> None:
    assert release().rpartition(".")[0] in AUTOSCALERS


def test_the_stand_in_of_the_image_is_run_as_the_dockerfile_says() -> None:
    own = images(Path("/autoscaler"), "v1.36.1")["/cloudgraft"]
    assert list(own.entrypoint) == ["cloudgraft"]
    assert own.directory == "/etc/cloudgraft/config"
    assert own.environment["HOME"] == "/tmp"
    assert own.environment["PATH"].startswith("/opt/cloudgraft/bin:")


def test_all_but_exec_is_left_to_the_real_kubectl(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\necho "real: $*"\n')
    real.chmod(0o755)
    program = kubectl.write(tmp_path / "kubectl", real, tmp_path / "running.json")
    done = subprocess.run([program, "-n", "x", "get", "pods"], capture_output=True, text=True, check=True)
    assert done.stdout == "real: -n x get pods\n"


def test_exec_into_a_pod_that_does_not_run_fails(tmp_path: Path) -> None:
    running = tmp_path / "running.json"
    running.write_text(json.dumps({"x": {}}))
    program = kubectl.write(tmp_path / "kubectl", tmp_path / "real", running)
    done = subprocess.run(
        [program, "-n", "x", "exec", "web", "--", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "error: no pod of web runs in the namespace x\n"
