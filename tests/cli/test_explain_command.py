"""`cloudgraft explain` against a running engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.cli.explain import command
from cloudgraft.engine.operations import pauses
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.store.records import Scope, State
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig, group


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path)) as made:
        yield made


async def test_a_group_gets_a_verdict_what_to_do_and_what_happened(operator: Operator) -> None:
    await operator.rig.provider.increase_size("g", 1)
    await operator.rig.settle(5)
    operator.rig.cloud.set_chaos(Chaos(stock={"small": 1}))
    await operator.rig.provider.increase_size("g", 3)
    await operator.rig.settle(2)
    await pauses.pause(operator.rig.engine, Scope.GROUP, "g", "the invoice")
    shown = (await operator.run(command, "g")).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0].startswith("g: group g has been paused since ")
    assert lines[0].endswith(": the invoice")
    assert "-> `cloudgraft resume g`" in lines
    assert "- 3 machines failed (out_of_stock): there are no more machines of the shape small" in lines
    assert "target 4, min 0, max 10; 1 running, 3 failed" in lines
    assert any(line.endswith("increase the autoscaler asked for 3 more") for line in lines)
    assert any("failed 3 machines there are no more machines" in line for line in lines)
    assert any("paused an operator paused group g: the invoice" in line for line in lines)


async def test_a_machine_gets_its_history_by_name_and_by_provider_id(operator: Operator) -> None:
    await operator.rig.provider.increase_size("g", 1)
    await operator.rig.settle(5)
    (record,) = operator.rig.records(State.RUNNING)
    await operator.rig.provider.delete_nodes("g", [NodeRef(name="x", provider_id=record.provider_id)])
    await operator.rig.settle(3)
    for subject in (record.name, record.provider_id, record.machine_id):
        answer = await operator.json(command, subject)
        states = [event["state"] for event in answer["events"]]
        assert states == ["requested", "creating", "booting", "running", "deleting", "gone"]
    shown = (await operator.run(command, record.name)).stdout
    assert f"{record.name}: it is gone in group g" in shown
    assert record.provider_id in shown


async def test_a_full_group_and_one_that_is_not_served_say_so_at_the_top(tmp_path: Path) -> None:
    groups = (group("full", max_size=1), group("wrong", machine={"shape": "no such shape"}))
    async with operating(Rig(tmp_path, groups=groups)) as operator:
        await operator.rig.provider.increase_size("full", 1)
        await pauses.pause(operator.rig.engine, Scope.GROUP, "full", "the invoice")
        full = (await operator.run(command, "full")).stdout.splitlines()
        assert full[1] == "  target 1, min 0, max 1 (at its maximum); 1 requested"
        wrong = (await operator.run(command, "wrong")).stdout.splitlines()
        assert wrong[0].startswith("wrong: it is not served: cloud sim has no machine type")
        assert wrong[1:3] == ["  not served; no machines", "  -> correct the configuration"]


async def test_an_unknown_name_is_compared_with_those_there_are_and_those_to_come(operator: Operator) -> None:
    operator.rig.groups = (group("small"), group("brandnew"))
    await operator.rig.reconfigure()
    assert "did you mean 'small'?" in (await operator.run(command, "smal", code=1)).stderr
    operator.rig.groups = (group("small"), group("brandnew"), group("later"))
    operator.rig.engine.reconfigure(operator.rig.desired_state())
    assert "'later' yet: the changed configuration that has it" in (await operator.run(command, "later", code=1)).stderr


async def test_what_is_not_there_is_an_error_that_names_the_groups(operator: Operator) -> None:
    result = await operator.run(command, "x", code=1)
    assert result.stderr == "error: there is no group and no machine 'x'; the groups are: g\n"


async def test_a_quiet_group_is_told_to_be_fine(operator: Operator) -> None:
    shown = (await operator.run(command, "g")).stdout
    assert "g: nothing is in its way: 0 running, target 0, of at most 10" in shown
    assert "the autoscaler has not asked for more" in shown
