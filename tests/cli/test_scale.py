"""`cloudgraft scale` against a running engine: what it orders, refuses, waits for, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cloudgraft.admin.server import AdminServer
from cloudgraft.cli import scale
from cloudgraft.cli.machine_progress import progress
from cloudgraft.cli.main import cloudgraft
from cloudgraft.store.records import State
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig, group

command = scale.command


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path, groups=(group(max_size=4), group("gpu", machine={"shape": "gpu"})))) as made:
        yield made


@asynccontextmanager
async def turning(rig: Rig) -> AsyncIterator[None]:
    """Time passes while a command waits."""

    async def turn() -> None:
        while True:
            await rig.turn(5)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(turn())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_an_order_is_made_and_says_what_may_happen_next(operator: Operator) -> None:
    shown = (await operator.run(command, "g", "+2")).stdout
    (name, _) = (record.name for record in operator.rig.records())
    assert shown.startswith("g: target 0 -> 2, 2 ordered.\n")
    assert f"  {name}\n" in shown
    assert shown.endswith("note: the autoscaler may change the size again\n")
    (event,) = await operator.rig.events("scale")
    assert event.data["by"]  # the user of this process


async def test_waiting_shows_each_change_once_in_a_pipe_and_ends_when_all_run(operator: Operator) -> None:
    async with turning(operator.rig):
        shown = (await operator.run(command, "g", "+2", "--wait")).stdout
    lines = [line for line in shown.splitlines() if re.match(r"g: \d ", line)]
    assert lines[-1] == "g: 2 ready"
    assert len(lines) == len(set(lines))
    assert "2 ready: the machines run. No cluster is configured to see their nodes." in shown
    assert len(operator.rig.records(State.RUNNING)) == 2


async def test_a_machine_that_fails_is_shown_with_its_error_and_exit_code_3(operator: Operator) -> None:
    operator.rig.chaos(stock={"gpu": 0})
    async with turning(operator.rig):
        result = await operator.run(command, "gpu", "+1", "--wait", code=3)
        answer = await operator.json(command, "gpu", "=1", "--wait", code=3)
    assert "out_of_stock: there are no more machines of the shape gpu" in result.stdout
    assert result.stderr == "error: 1 of 1 machines are not ready\n"
    assert answer["waited"]["outcome"] == "failed"
    assert "out_of_stock" in answer["waited"]["machines"][0]["error"]


async def test_a_machine_that_is_removed_meanwhile_is_not_ready(operator: Operator) -> None:
    await operator.run(command, "g", "+1", "--order", "one")
    await operator.run(command, "g", "-1", "--yes")
    result = await operator.run(command, "g", "+1", "--order", "one", "--wait", code=3)
    assert "1 ordered, by the same order before" in result.stdout
    assert re.search(r"gone +an operator .* removed it", result.stdout)


async def test_time_that_is_up_is_exit_code_4_and_the_order_stands(operator: Operator) -> None:
    result = await operator.run(command, "g", "+1", "--wait", "--timeout", "10ms", code=4)
    assert result.stderr == "error: after 10ms, 1 of 1 are not ready; the order stands\n"
    answer = await operator.json(command, "g", "=1", "--wait", "--timeout", "10ms", code=4)
    assert answer["waited"]["outcome"] == "timeout"
    assert answer["waited"]["machines"][0]["stage"] == "requested"


async def test_what_is_refused_is_exit_code_1_and_changes_nothing(operator: Operator) -> None:
    result = await operator.run(command, "g", "+5", code=1)
    assert result.stderr == ("error: nothing was changed in group g: its maxSize is 4, and +5 would make 5 of 0\n")
    assert "did you mean 'gpu'?" in (await operator.run(command, "gpuu", "=1", code=1)).stderr
    assert operator.rig.records() == []


async def test_minus_one_is_an_argument_and_removes_what_is_not_ready(operator: Operator) -> None:
    await operator.run(command, "g", "+2")
    answer = await operator.json(command, "g", "-1")
    assert (answer["removed"], answer["target"]) == (1, 1)
    async with turning(operator.rig):
        shown = (await operator.run(command, "-1", "--wait", "g", code=2)).stderr
    assert "write +2 for two more" in shown  # the group comes first


async def test_machines_that_run_need_a_word_and_without_a_terminal_a_yes(operator: Operator) -> None:
    await operator.rig.provider.increase_size("g", 2)
    await operator.rig.settle(5)
    assert "only 0 of its 2 machines are not ready yet" in (await operator.run(command, "g", "-1", code=1)).stderr
    unasked = await operator.run(command, "g", "-1", "--delete-ready", code=2)
    assert "there is no terminal to ask: say --yes" in unasked.stderr
    name = operator.rig.records()[0].name
    async with turning(operator.rig):
        shown = (await operator.run(command, "g", "-1", "--machine", name, "--yes", "--wait")).stdout
    assert shown.endswith("g: 1 gone\n1 gone.\n")
    assert name not in operator.rig.alive()


async def test_on_a_terminal_it_asks_and_no_means_nothing(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    await operator.run(command, "g", "+1")
    monkeypatch.setattr(scale, "_is_terminal", lambda: True)

    async def say(word: str) -> Result:
        given = ["g", "-1", "--config", str(operator.config)]
        return await asyncio.to_thread(CliRunner().invoke, command, given, f"{word}\n")

    refused = await say("n")
    (record,) = operator.rig.records()
    assert record.name in refused.stdout
    assert "Remove 1 from g?" in refused.stdout
    assert (refused.exit_code, refused.stderr) == (1, "error: nothing was changed\n")
    assert (await say("y")).exit_code == 0
    assert operator.rig.records(State.REQUESTED) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g", "5"], "Say =5, +5 or -5."),
        (["g", "--wiat", "-1"], "No such option"),
        (["g"], "Missing argument"),
        (["g", "+"], "write +2 for two more"),
        (["g", "+0"], "'+0' changes nothing"),
        (["g", "-00"], "'-00' changes nothing"),
        (["g", "+1", "--machine", "m"], "--machine names a machine to remove, and +1 removes none"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cloudgraft, ["scale", *arguments, "--admin", "unix:/nowhere"])
    assert result.exit_code == 2
    assert message in result.stderr


# -- a server that dies ------------------------------------------------------------------------------------------------


@pytest.fixture
def directory() -> Iterator[Path]:
    """The path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="cg") as found:
        yield Path(found)


@contextlib.contextmanager
def server(directory: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "tests.cli.scale_server", str(directory), how]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        try:
            yield process
        finally:
            process.kill()


async def test_an_order_is_made_once_although_the_server_is_killed_before_it_answers(directory: Path) -> None:
    given = ["g", "+2", "--admin", f"unix:{directory}/admin.sock"]
    with server(directory, "doomed") as first:
        ordered = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, command, given))
        assert await asyncio.to_thread(first.wait, 60) == -9
    with server(directory, "lasting"):
        result = await ordered
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("g: target 0 -> 2, 2 ordered, by the same order before.\n")
        same = await asyncio.to_thread(CliRunner().invoke, command, ["g", "=2", *given[2:]])
        assert same.stdout == "g has a target of 2 already; nothing was changed.\n"


async def test_without_an_answer_it_says_how_to_ask_again(directory: Path) -> None:
    async def hang(request: Mapping[str, object]) -> Mapping[str, object]:
        await asyncio.Event().wait()
        return {}

    hanging = AdminServer({"Scale": hang}, directory / "admin.sock")
    await hanging.start()
    given = ["g", "+2", "--admin", f"unix:{directory}/admin.sock", "--timeout", "50ms"]
    lost = await asyncio.to_thread(CliRunner().invoke, command, given)
    assert lost.exit_code == 5
    assert "It is not known whether the order was made" in lost.stderr
    assert re.search(r"`cloudgraft scale g \+2 --order [0-9a-f]{16}`, with the same other options", lost.stderr)
    await hanging.stop(0)


# -- progress, pure ----------------------------------------------------------------------------------------------------


def report(node: object, *, watched: bool) -> dict[str, object]:
    machine = {"name": "m", "state": "running", "error": None, "node": node, "trouble": ""}
    return {"nodesWatched": watched, "groups": [{"machines": [machine]}]}


@pytest.mark.parametrize(
    ("node", "watched", "stage"),
    [
        (None, False, "ready"),
        (None, True, "running without a node yet"),
        ({"state": "unready"}, True, "running, its node is unready"),
        ({"state": "unknown"}, True, "running, its node is unknown"),
        ({"state": "ready"}, True, "ready"),
    ],
)
def test_a_machine_is_ready_with_its_node_where_nodes_are_watched(node: object, watched: bool, stage: str) -> None:
    seen = progress(report(node, watched=watched), ["m"])
    assert (seen.line(), seen.is_over) == (f"1 {stage}", stage == "ready")


def test_the_command_has_examples_and_its_exit_codes_in_its_help() -> None:
    shown = CliRunner().invoke(command, ["--help"]).stdout
    assert isinstance(command, click.Command)
    assert "cloudgraft scale small +2 --wait" in shown
    assert "5  no answer" in shown
