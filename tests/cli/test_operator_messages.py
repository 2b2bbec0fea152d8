"""What an operator is told when something is not as usual."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.reload import Reloader, WatchedFile
from cloudgraft.app.wiring import assemble, check_parts
from cloudgraft.cli import explain, pause, status
from cloudgraft.cli.serve import command as serve
from cloudgraft.cli.status import view
from cloudgraft.config import load
from cloudgraft.service.metrics import ServiceMetrics
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig, group

CONFIG = """\
cluster: prod
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: small, cloud: sim, maxSize: 5, machine: {shape: small}}]
"""


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path, groups=[group("small"), group("typo", machine={"shape": "smal"})])) as found:
        yield found


async def test_a_group_that_is_left_out_is_shown_with_its_cloud(operator: Operator) -> None:
    """Its cloud may be the reason, so `explain` must find it."""
    shown = {each["id"]: each for each in (await operator.json(status.command))["groups"]}
    assert shown["typo"]["cloud"] == shown["small"]["cloud"] == "sim"
    assert "no machine type 'smal'" in (await operator.run(explain.command, "typo")).stdout


async def test_explain_tells_of_both_pauses(operator: Operator) -> None:
    """Whoever resumes the group must not wonder why it still stands still."""
    await operator.run(pause.command, "small")
    await operator.run(pause.command, "--cloud", "sim")
    shown = (await operator.run(explain.command, "small")).stdout
    assert "`cloudgraft resume small`" in shown
    assert "`cloudgraft resume --cloud sim`" in shown


async def test_explain_names_all_groups_when_it_does_not_know_one(operator: Operator) -> None:
    assert "the groups are: small, typo" in (await operator.run(explain.command, "nosuch", code=1)).stderr


async def test_status_says_what_carries_the_calls_where_it_is_known(operator: Operator) -> None:
    report = await operator.json(status.command)
    assert "served over" not in _shown({key: value for key, value in report.items() if key != "transport"})
    assert ", served over native\n" in _shown({**report, "transport": "native"})


async def test_status_says_so_when_not_all_machines_in_trouble_are_shown(operator: Operator) -> None:
    report = await operator.json(status.command)
    machine = {"name": "m", "state": "failed", "stateAge": 1.0, "age": 1.0, "machineId": "", "providerId": ""}
    error = {"code": "out_of_stock", "message": "none left", "errorClass": 1}
    small = next(each for each in report["groups"] if each["id"] == "small")
    small |= {"machines": [{**machine, "error": error}] * 50, "states": {"failed": 997}, "complete": False}
    shown = _shown(report)
    assert "Machines in trouble: 50 of 997" in shown
    assert shown.index("LISTED") < shown.index("Machines in trouble")  # a short terminal cuts what comes last


def _shown(report: Mapping[str, Any]) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(view(report))
    return captured.get()


@pytest.mark.parametrize("content", ["x: 2020-13-45", "[" * 2000, "x: [", "\ufffe"])
def test_a_file_that_is_not_yaml_is_no_traceback(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cloudgraft.yaml"
    path.write_text(content, "utf-8")
    result = CliRunner().invoke(status.command, ["--config", str(path)])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert result.stderr.startswith("error: ")


def test_check_says_that_there_is_no_group(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("cluster: prod\nclouds: {sim: {driver: simulated}}\nnodeGroups: []\n")
    assert CliRunner().invoke(serve, ["--config", str(path), "--check"]).stdout == f"{path}: good (no groups)\n"


async def test_a_changed_webhook_is_said_to_need_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    config = load(path)
    engine = assemble(config, ServiceMetrics()).engine
    assert engine is not None
    reloader = Reloader(WatchedFile(path, lambda: load(path)), config, engine, ClusterLink(config))
    path.write_text(f"{CONFIG}engine: {{webhook: {{url: 'https://alerts.example/hunter2'}}}}\n")
    with caplog.at_level(logging.WARNING, "cloudgraft.cli"):
        await reloader.reload()
    assert "a change of these needs a restart: engine.webhook" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_reload_reports_problems_of_file_and_drivers_together(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    config = load(path)
    engine = assemble(config, ServiceMetrics()).engine
    assert engine is not None
    read = WatchedFile(path, lambda: load(path, find=check_parts))
    reloader = Reloader(read, config, engine, ClusterLink(config))
    path.write_text(f"{CONFIG}server: {{listen: 8386}}\n".replace("shape: small", "shape: small, typo: 1"))
    await reloader.reload()
    assert [line.split(": ")[1] for line in reloader.problem.splitlines()] == [
        "nodeGroups[0].machine.typo",
        "server.listen",
    ]
