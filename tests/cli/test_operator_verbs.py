"""`cloudgraft pause`, `resume`, `adopt` and `orphans` against a running engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cloudgraft.cli import accept_loss, adopt, orphans, pause, resume, status
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_GROUP
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import Order, SimMachine
from cloudgraft.store.records import Scope, State
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path)) as made:
        yield made


def made(operator: Operator, name: str, **tags: str) -> SimMachine:
    machine, _ = operator.rig.cloud.create(Order(name=name, settings=MachineSettings(shape="small"), tags=tags))
    return machine


def lost(operator: Operator, name: str) -> SimMachine:
    return made(operator, name, **{TAG_CLUSTER_ID: operator.rig.engine.identity.cluster_id, TAG_GROUP: "g"})


async def test_pause_and_resume_say_what_they_did(operator: Operator) -> None:
    first = await operator.run(pause.command, "g", "--reason", "the invoice")
    assert first.stdout == "Paused group g. `cloudgraft resume g` ends it.\n"
    assert operator.rig.engine.fleet.pauses[Scope.GROUP, "g"].reason == "the invoice"
    assert (await operator.run(pause.command, "g")).stdout == "Group g was paused already.\n"
    assert await operator.json(pause.command, "--cloud", "sim") == {"scope": "cloud", "name": "sim", "changed": True}
    assert (await operator.run(resume.command, "g")).stdout == "Resumed group g.\n"
    assert (await operator.run(resume.command, "g")).stdout == "Group g was not paused.\n"
    assert await operator.json(resume.command, "--cloud", "sim") == {"scope": "cloud", "name": "sim", "changed": True}
    assert operator.rig.engine.fleet.pauses == {}


async def test_what_is_not_there_cannot_be_paused(operator: Operator) -> None:
    assert (await operator.run(pause.command, "x", code=1)).stderr == "error: there is no group 'x'; there is: g\n"
    assert "say either a GROUP or --cloud" in (await operator.run(pause.command, code=2)).stderr
    assert (await operator.run(resume.command, "g", "--cloud", "sim", code=2)).stdout == ""


async def test_accept_loss_believes_a_list_that_misses_all_machines(operator: Operator) -> None:
    assert (await operator.run(accept_loss.command, "--cloud", "sim")).stdout == "Nothing of cloud sim is held back.\n"
    await operator.rig.provider.increase_size("g", 3)
    await operator.rig.settle(5)
    operator.rig.chaos(emptyLists=1)
    await operator.rig.settle(3)
    assert "misses 3 of 3 machines at once" in (await operator.run(status.command)).stdout
    assert (await operator.run(accept_loss.command, "--cloud", "sim")).stdout == "Accepted: 3 machines of cloud sim.\n"
    await operator.rig.settle(3)
    assert operator.rig.records(State.RUNNING) == []
    assert await operator.json(accept_loss.command, "g") == {"scope": "group", "name": "g", "machines": 0}


async def test_adopt_shows_what_it_would_do_and_does_it_with_yes(operator: Operator) -> None:
    machine = made(operator, "worker-1")
    await operator.rig.settle(4)
    shown = (await operator.run(adopt.command, "g", "--all-matching", "worker-")).stdout
    assert machine.provider_id in shown
    assert "Nothing was changed: 1 would be adopted. Say --yes to do it." in shown
    assert operator.rig.records() == []
    assert "1 adopted, 0 refused." in (await operator.run(adopt.command, "g", machine.machine_id, "--yes")).stdout
    await operator.rig.turn()
    assert [r.state for r in operator.rig.records()] == [State.RUNNING]
    again = await operator.run(adopt.command, "g", machine.machine_id, "--yes", code=1)
    assert "refused: it is in the journal already" in again.stdout
    assert "has a name that begins so" in (await operator.run(adopt.command, "g", "--all-matching", "worker-")).stdout


async def test_a_cloud_that_cannot_be_listed_is_not_said_to_have_no_orphans(operator: Operator) -> None:
    operator.rig.chaos(list={"unavailable": 1})
    await operator.rig.settle(3)
    shown = (await operator.run(orphans.command, "list")).stdout
    assert "No orphans are known, but" in shown
    assert "cloud sim: its lists fail, and the last good one is " in shown
    (unknown,) = (await operator.json(orphans.command, "list"))["unknown"]
    assert unknown["cloud"] == "sim"


async def test_orphans_are_listed_adopted_released_and_deleted(operator: Operator) -> None:
    assert "No orphans" in (await operator.run(orphans.command, "list")).stdout
    one, two = lost(operator, "one"), lost(operator, "two")
    await operator.rig.settle(4)
    shown = (await operator.run(orphans.command, "list")).stdout
    assert "unknown" in shown
    assert f"adopt {one.machine_id}, or delete {one.machine_id}" in shown
    assert "Nothing was changed" in (await operator.run(orphans.command, "delete", one.machine_id)).stdout
    done = await operator.json(orphans.command, "delete", one.machine_id, "--yes")
    assert [item["note"] for item in done["items"]] == ["its cloud is deleting it"]
    await operator.rig.settle(2)
    assert "1 adopted, 0 refused." in (await operator.run(orphans.command, "adopt", "--all", "--yes")).stdout
    assert "No orphan has our marks." in (await operator.run(orphans.command, "adopt", "--all", "--yes")).stdout
    await operator.rig.turn()
    assert operator.rig.alive() == ["two"]
    assert "Nothing was changed" in (await operator.run(orphans.command, "release", "two")).stdout
    assert "1 released, 0 refused." in (await operator.run(orphans.command, "release", "two", "--yes")).stdout
    await operator.rig.turn(10)
    (orphan,) = (await operator.json(orphans.command, "list"))["orphans"]
    assert (orphan["kind"], orphan["machineId"]) == ("released", two.machine_id)


async def test_what_is_refused_says_why_and_ends_with_exit_code_1(operator: Operator) -> None:
    machine = made(operator, f"{operator.rig.engine.identity.prefix}x")
    await operator.rig.settle(4)
    result = await operator.run(orphans.command, "delete", machine.machine_id, "--yes", code=1)
    assert "refused: it does not show our marks; if you are certain that it is yours, say --force" in result.stdout
    forced = await operator.run(orphans.command, "delete", machine.machine_id, "--force", "--yes")
    assert "1 deleted, 0 refused." in forced.stdout
    assert "is configured" in (await operator.run(orphans.command, "release", "--group", "g", code=1)).stderr


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (adopt.command, ["g"]),
        (adopt.command, ["g", "1", "--all-matching", "w"]),
        (orphans.command, ["adopt"]),
        (orphans.command, ["adopt", "1", "--all"]),
        (orphans.command, ["release"]),
        (orphans.command, ["release", "x", "--group", "g"]),
        (orphans.command, ["delete"]),
    ],
)
def test_without_saying_which_machines_it_is_a_usage_error(command: click.Command, arguments: list[str]) -> None:
    assert CliRunner().invoke(command, [*arguments, "--admin", "unix:/nowhere"]).exit_code == 2


@pytest.mark.parametrize("command", [pause.command, resume.command, adopt.command, orphans.command])
def test_every_verb_has_examples_in_its_help(command: click.Command) -> None:
    assert f"cloudgraft {command.name}" in CliRunner().invoke(command, ["--help"]).stdout
