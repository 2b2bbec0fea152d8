"""`cloudgraft status` against a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.status import command, watch, watch_server
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.simcloud.chaos import Chaos
from tests.cli.operator_rig import Operator, operating
from tests.conditions import until
from tests.engine.engine_rig import Rig, group


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    settings = EngineSettings(guards=GuardLimits(max_machines=5))
    groups = (group(), group("broken", machine={"shape": "no such shape"}), group("gpu", machine={"shape": "gpu"}))
    async with operating(Rig(tmp_path, groups=groups, settings=settings)) as made:
        made.rig.cloud.set_chaos(Chaos(stock={"gpu": 0}))
        await made.rig.provider.increase_size("g", 2)
        await made.rig.provider.increase_size("gpu", 1)
        await made.rig.settle(5)
        yield made


async def test_it_shows_groups_clouds_guards_and_machines_in_trouble(operator: Operator) -> None:
    shown = (await operator.run(command)).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.startswith("g sim 2 0 10 2 running 0.02 EUR") for line in lines)
    assert any(line.startswith("broken") and "left out: cloud sim has no machine type" in line for line in lines)
    assert any("gpu failed" in line and "out_of_stock" in line for line in lines)
    assert any(line.startswith("sim SimulatedDriver up 0s ago 2 2 0 0") for line in lines)
    assert "maxMachines all clouds 2 5 3" in lines
    assert "Why: cloudgraft explain" in shown


async def test_a_machine_that_is_tried_again_is_shown_with_what_its_cloud_said(operator: Operator) -> None:
    operator.rig.chaos(create={"rateLimits": 1})
    await operator.rig.provider.increase_size("g", 1)
    await operator.rig.settle(2)
    shown = (await operator.run(command)).stdout
    (line,) = [" ".join(line.split()) for line in shown.splitlines() if "asks for fewer calls" in line]
    assert " g creating " in line
    operator.rig.chaos()
    await operator.rig.settle(10)
    assert "creating" not in (await operator.run(command)).stdout


async def test_one_group_comes_with_all_its_machines(operator: Operator) -> None:
    shown = (await operator.run(command, "g")).stdout
    assert all(record.name in shown for record in operator.rig.engine.fleet.groups["g"].machines.values())
    assert "gpu" not in shown


async def test_json_for_programs_has_everything(operator: Operator) -> None:
    answer = await operator.json(command, "--machines")
    groups = {each["id"]: each for each in answer["groups"]}
    assert groups["g"]["states"] == {"running": 2}
    assert {m["state"] for m in groups["g"]["machines"]} == {"running"}
    assert groups["gpu"]["machines"][0]["error"]["code"] == "out_of_stock"
    assert answer["leader"] is True
    assert answer["guards"] == [
        {"scope": "", "guard": "maxMachines", "used": 2, "limit": 5, "left": 3, "unit": ""},
    ]


async def test_a_group_that_is_not_there_is_an_error_that_names_those_that_are(operator: Operator) -> None:
    result = await operator.run(command, "x", code=1)
    assert result.stderr == "error: there is no node group 'x'; there is: broken, g, gpu\n"


async def test_without_groups_it_says_what_to_write(tmp_path: Path) -> None:
    async with operating(Rig(tmp_path, groups=())) as made:
        assert "No node group is served. Write `clouds` and `nodeGroups`" in (await made.run(command)).stdout


async def test_watching_goes_on_when_the_server_is_away() -> None:
    answers: list[Any] = [{"a": 1}, UnavailableError("away"), {"a": 2}]
    seen: list[Any] = []

    async def ask() -> dict[str, Any]:
        await asyncio.sleep(0)
        answer = answers.pop(0)
        if isinstance(answer, CloudgraftError):
            raise answer
        return dict(answer)

    await watch(ask, seen.append, lambda error: seen.append(error.message), 0.001, rounds=3)
    assert seen == [{"a": 1}, "away", {"a": 2}]


@pytest.mark.parametrize(("output", "expected"), [("json", '"cluster": "test"'), ("table", "cluster test")])
async def test_watching_a_server_prints_time_and_again(
    operator: Operator, capsys: pytest.CaptureFixture[str], output: str, expected: str
) -> None:
    admin = Admin(
        config=operator.config,
        address="",
        cert=None,
        key=None,
        cacert=None,
        server_name="",
        timeout=timedelta(seconds=10),
    )
    watching = asyncio.create_task(watch_server(admin, {}, 0.01, output))
    printed = ""

    def is_enough() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed.count(expected) > 1

    await until(is_enough)
    watching.cancel()
    await asyncio.wait({watching})


# -- which server ------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command, arguments)


def test_without_a_server_it_says_so_and_how_to_start_one(tmp_path: Path) -> None:
    result = run("--admin", f"unix:{tmp_path}/x.sock", "--timeout", "5s")
    assert result.exit_code == 1
    assert "no cloudgraft server answers at unix:" in result.stderr
    assert "cloudgraft serve --config FILE" in result.stderr


def test_the_default_is_the_configuration_file_of_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run()
    assert (result.exit_code, "there is no cloudgraft.yaml in this directory" in result.stderr) == (2, True)
    (tmp_path / "cloudgraft.yaml").write_text("cluster: x\nstore: {path: j.db}\n")
    assert f"{tmp_path}/j.db.sock" in run().stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("admin: {listen: '0.0.0.0:8088'}", "the admin port 127.0.0.1:8088 speaks TLS"),
        ("store: {postgresql: db/x, passwordFile: /nowhere}", "/cloudgraft.sock"),
        ("[", "it is not YAML"),
        ("admin: {listen: 'unix:'}", "does not say where the server listens for operators"),
    ],
)
def test_the_address_is_read_from_the_file_whatever_else_is_in_it(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    result = run("--config", str(path))
    assert result.exit_code in (1, 2)
    assert expected in result.stderr


def test_options_that_contradict_each_other_are_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("cluster: x\n")
    for given in (["--config", str(path), "--admin", "unix:/x"], ["--admin", "unix:/x", "--cert", "y"]):
        assert run(*given).exit_code == 2
    assert "no such file" in run("--config", str(tmp_path / "none")).stderr.lower()


def test_it_has_examples_in_its_help() -> None:
    assert "cloudgraft status small --watch" in run("--help").stdout
