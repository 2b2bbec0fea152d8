"""`cloudgraft events`: what it shows, and that following loses and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudgraft.admin.methods import engine_methods
from cloudgraft.admin.server import AdminServer
from cloudgraft.cli import events
from cloudgraft.engine.new_records import happened
from cloudgraft.store.records import Change
from tests.cli.operator_rig import Operator, operating
from tests.conditions import until
from tests.engine.engine_rig import Rig, group

command = events.command


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path, groups=(group(), group("other")))) as made:
        yield made


async def write(rig: Rig, *messages: str, kind: str = "configured", id_: str = "g") -> None:
    told = [happened(kind, rig.clock.now(), message, cloud="sim", group=id_) for message in messages]
    await rig.engine.writer.write(lambda: Change(events=told))


async def shown(operator: Operator, *arguments: str) -> list[str]:
    return (await operator.run(command, *arguments)).stdout.splitlines()


async def test_the_newest_come_last_one_line_each(operator: Operator) -> None:
    await write(operator.rig, "one", "two", "three\nlines\x1b[2J")
    lines = await shown(operator, "-n", "2")
    assert [line.split("  ", 1)[1] for line in lines] == [
        "configured        g  two",
        r"configured        g  three\nlines\x1b[2J",
    ]


async def test_they_are_chosen_by_group_machine_type_and_age(operator: Operator) -> None:
    rig = operator.rig
    await write(rig, "old")
    rig.clock.advance(3600)
    await write(rig, "elsewhere", id_="other")
    await write(rig, "new", kind="guard")
    assert [line.split()[-1] for line in await shown(operator, "--group", "g", "--type", "guard")] == ["new"]
    since = [json.loads(line) for line in await shown(operator, "--since", "30m", "-o", "json")]
    assert [event["message"] for event in since] == ["elsewhere", "new"]
    assert (since[1]["kind"], since[1]["level"], since[1]["group"]) == ("guard", "warning", "g")
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (record,) = rig.records()
    for known_as in (record.name, record.machine_id, record.provider_id):
        assert [line.split()[1] for line in await shown(operator, "--machine", known_as)] == [
            "state=requested",
            "state=creating",
            "state=booting",
            "state=running",
        ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "othr"], "there is no node group 'othr'; there is: g, other; did you mean 'other'?"),
        (["--type", "gard"], "there are no events of type 'gard'; did you mean 'guard'?"),
        (["--machine", "x"], "the journal has no machine 'x', and no event about one"),
    ],
)
async def test_a_name_that_is_not_there_is_an_error(operator: Operator, arguments: list[str], message: str) -> None:
    assert (await operator.run(command, *arguments, code=1)).stderr == f"error: {message}\n"


async def test_all_of_an_hour_come_however_many_pages_they_have(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_PAGE", 3)
    await write(operator.rig, *(str(number) for number in range(8)), kind="guard")
    lines = await shown(operator, "--since", "1h", "--type", "guard")
    assert [line.split()[-1] for line in lines] == [str(number) for number in range(8)]


class Follower:
    """The command as a process that writes into a pipe."""

    def __init__(self, config: Path, *arguments: str) -> None:
        program = [sys.executable, "-m", "cloudgraft.cli", "events", "-f", "-o", "json", "--config", str(config)]
        self.process = subprocess.Popen(
            [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[dict[str, Any]] = []

    async def read(self, count: int) -> list[str]:
        """The messages of so many events, as they come."""
        assert self.process.stdout is not None
        for _ in range(count):
            self.lines.append(json.loads(await asyncio.to_thread(self.process.stdout.readline)))
        return [line["message"] for line in self.lines[-count:]]

    async def end(self) -> tuple[int, str]:
        _, errors = await asyncio.to_thread(self.process.communicate, timeout=60)
        return self.process.returncode, errors


async def test_following_survives_a_restart_without_loss_or_repetition(operator: Operator) -> None:
    rig, first = operator.rig, Path(str(operator.config.parent / "again.sock"))
    server = AdminServer(engine_methods(rig.engine), first)
    await server.start()
    operator.config.write_text(f"admin: {{listen: 'unix:{first}'}}\n")
    await write(rig, "before", kind="guard")
    follower = Follower(operator.config, "--type", "guard")
    assert await follower.read(1) == ["before"]
    await write(rig, "one", kind="guard")
    assert await follower.read(1) == ["one"]
    await server.stop(1)
    await write(rig, "while it was away", kind="guard")
    await write(rig, "of another type")
    server = AdminServer(engine_methods(rig.engine), first)
    await server.start()
    await write(rig, "after", kind="guard")
    assert await follower.read(2) == ["while it was away", "after"]
    assert follower.process.stdout is not None
    follower.process.stdout.close()  # nobody reads any more, and no event comes that would show it
    await until(lambda: follower.process.poll() is not None, what="the end of the command")
    assert follower.process.stderr is not None
    with follower.process.stderr as errors:
        assert (follower.process.returncode, errors.read().count("Traceback")) == (0, 0)
    numbers = [line["id"] for line in follower.lines]
    assert numbers == sorted(set(numbers))
    await server.stop(1)


async def test_following_waits_for_a_server_that_does_not_run_yet(operator: Operator) -> None:
    path = operator.config.parent / "later.sock"
    operator.config.write_text(f"admin: {{listen: 'unix:{path}'}}\n")
    await write(operator.rig, "before", kind="guard")
    follower = Follower(operator.config, "--type", "guard")
    assert follower.process.stderr is not None
    assert "the server does not answer, and is asked again" in await asyncio.to_thread(follower.process.stderr.readline)
    server = AdminServer(engine_methods(operator.rig.engine), path)
    await server.start()
    assert await follower.read(1) == ["before"]
    follower.process.send_signal(signal.SIGINT)
    assert await follower.end() == (0, "")  # it was said once
    await server.stop(1)


@pytest.mark.thorough
async def test_it_ends_quietly_with_ctrl_c(operator: Operator) -> None:
    await write(operator.rig, "one", kind="guard")
    follower = Follower(operator.config, "-n", "1")
    assert await follower.read(1) == ["one"]
    follower.process.send_signal(signal.SIGINT)
    assert await follower.end() == (0, "")


def test_the_help_has_examples() -> None:
    assert "cloudgraft events --group small --since 1h" in CliRunner().invoke(command, ["--help"]).stdout
