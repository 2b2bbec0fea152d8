"""`cloudgraft scale` inside the engine: limits, which machines go, and one change for each order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.groups.desired import Joining
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.keyed_requests import KeyReusedError
from cloudgraft.engine.operations import pauses
from cloudgraft.engine.operations.scaling import ScaleOrder, preview, scale
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Scope, State
from tests.engine.clusters import MemoryCluster
from tests.engine.engine_rig import Rig, group, running
from tests.engine.killable_engine import Killed, MortalRig
from tests.engine.operations.operators import grown


async def order(rig: Rig, change: str, key: str = "k", id_: str = "g", **more: Any) -> Mapping[str, Any]:
    return await scale(rig.engine, ScaleOrder(group=id_, change=change, **more), key)


async def test_plus_orders_machines_that_come(rig: Rig) -> None:
    answer = await order(rig, "+2", by="alice")
    assert (answer["before"], answer["target"], answer["added"]) == (0, 2, 2)
    await rig.settle(5)
    assert sorted(r.name for r in rig.records(State.RUNNING)) == sorted(m["name"] for m in answer["machines"])
    (event,) = await rig.events("scale")
    assert event.message == "an operator (alice) ordered 2: the target goes from 0 to 2"
    assert (event.group, event.data["by"], event.data["delta"]) == ("g", "alice", 2)


async def test_equals_goes_both_ways_and_no_further(rig: Rig) -> None:
    assert (await order(rig, "=3", "a"))["added"] == 3
    assert (await order(rig, "=3", "b"))["machines"] == []
    answer = await order(rig, "=1", "c")
    assert (answer["removed"], answer["target"]) == (2, 1)
    assert await rig.provider.target_size("g") == 1
    assert [event.data["delta"] for event in await rig.events("scale")] == [3, -2]


@pytest.mark.parametrize("change", ["+2", "=2"])
async def test_a_repeated_order_is_made_once_also_after_a_restart(rig: Rig, change: str) -> None:
    first = await order(rig, change)
    await rig.restart()
    again = await order(rig, change)
    assert again == {**first, "repeated": True}
    assert await rig.provider.target_size("g") == 2
    with pytest.raises(KeyReusedError, match="this order id was used for another request"):
        await order(rig, "+3")


async def test_an_order_that_changed_nothing_changes_nothing_when_repeated(rig: Rig) -> None:
    await order(rig, "=0")
    await rig.provider.increase_size("g", 2)
    assert (await order(rig, "=0"))["repeated"] is True
    assert await rig.provider.target_size("g") == 2


@pytest.mark.parametrize("is_after", [False, True])
async def test_kill_9_around_the_commit_leaves_one_order(tmp_path: Path, is_after: bool) -> None:
    rig = MortalRig(tmp_path)
    await rig.start()
    rig.life.doom(0, is_after=is_after)
    with pytest.raises(Killed):
        await order(rig, "+2")
    await rig.revive()
    assert await rig.provider.target_size("g") == (2 if is_after else 0)
    answer = await order(rig, "+2")
    assert (answer["repeated"], answer["target"]) == (is_after, 2)
    await rig.settle(5)
    assert sorted(rig.alive()) == sorted(m["name"] for m in answer["machines"])
    await rig.engine.close()


# -- limits ------------------------------------------------------------------------------------------------------------


async def refused(rig: Rig, change: str, message: str, id_: str = "g", **more: Any) -> None:
    """The order, its dry run and its repetition are all refused with this message, and nothing is changed."""
    before = (rig.records(), await rig.events(), dict(rig.engine.fleet.requests), rig.engine.guard_usage.use())
    with pytest.raises(CloudgraftError, match=message):
        preview(rig.engine, ScaleOrder(group=id_, change=change, **more))
    with pytest.raises(CloudgraftError, match=message):
        await order(rig, change, "refused", id_, **more)
    assert before == (rig.records(), await rig.events(), dict(rig.engine.fleet.requests), rig.engine.guard_usage.use())


async def test_minimum_and_maximum_are_named_and_held(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, groups=(group(min_size=1, max_size=4),))) as rig:
        await order(rig, "+2")
        await refused(rig, "+3", "its maxSize is 4, and [+]3 would make 5 of 2")
        await refused(rig, "=5", "its maxSize is 4")
        await refused(rig, "=0", "its minSize is 1, and =0 would make 0 of 2")
        await refused(rig, "-3", "it has a target of 2")
        await order(rig, "=4", "b")


async def test_a_maximum_that_waits_for_a_refresh_is_said(rig: Rig) -> None:
    rig.groups = (group(max_size=20), group("new"))
    rig.engine.reconfigure(rig.desired_state())
    await refused(rig, "+11", "waits for the autoscaler's next Refresh")
    await refused(rig, "+1", "no node group 'new' yet: the changed configuration that has it waits", id_="new")
    await rig.provider.refresh()
    await order(rig, "+11")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (GuardLimits(max_machines=3), "guards.maxMachines is 3 for all clouds, and 4 more would exceed that"),
        (GuardLimits(max_creates_per_hour=3), "guards.maxCreatesPerHour is 3 for all clouds"),
    ],
)
async def test_guards_refuse_the_whole_order_and_count_nothing(
    tmp_path: Path, limits: GuardLimits, message: str
) -> None:
    async with running(Rig(tmp_path, settings=EngineSettings(guards=limits))) as rig:
        await refused(rig, "+4", message)
        await order(rig, "+3")
        await refused(rig, "+1", "guards.max")
        await rig.settle(5)
        assert len(rig.records(State.RUNNING)) == 3


async def test_a_pause_and_observe_only_hold_every_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig):
        await order(rig, "+1")
        await pauses.pause(rig.engine, Scope.CLOUD, "sim", "the invoice")
        for change in ("+1", "-1"):
            await refused(rig, change, "cloud sim is paused: the invoice. `cloudgraft resume --cloud sim` ends that")
        await pauses.resume(rig.engine, Scope.CLOUD, "sim")
        rig.cloud_settings = replace(rig.cloud_settings, observe_only=True)
        await rig.reconfigure()
        for change in ("+1", "-1"):
            await refused(rig, change, "observeOnly of cloud sim is set")


async def test_a_cloud_that_is_down_gets_no_orders(rig: Rig) -> None:
    rig.chaos(list={"errors": 1})
    await rig.settle(10)
    await refused(rig, "+1", "cloud sim creates nothing now")


async def test_groups_that_are_not_there_not_served_or_draining(tmp_path: Path) -> None:
    groups = (group("small"), group("wrong", machine={"shape": "no such shape"}))
    async with running(Rig(tmp_path, groups=groups)) as rig:
        with pytest.raises(NotFoundError, match="there is: small, wrong; did you mean 'small'"):
            await order(rig, "+1", id_="smal")
        await refused(rig, "+1", "it is not served: cloud sim has no machine type", id_="wrong")
        await order(rig, "+2", id_="small")
        await rig.reconfigure(group("other"))
        await refused(rig, "+1", "it is no longer configured, and only shrinks", id_="small")
        assert (await order(rig, "-1", "b", id_="small"))["target"] == 1


async def test_a_process_that_does_not_lead_refuses(rig: Rig) -> None:
    await rig.engine.close()
    with pytest.raises(UnavailableError):
        await order(rig, "+1")


@pytest.mark.parametrize("change", ["2", "+0", "-0", "+-1", "=-1", "+1.5", "", "+9999999", "+\uff11"])
async def test_what_is_not_a_change_is_refused(rig: Rig, change: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not a change: write [+]2"):
        await order(rig, change)


# -- which machines are removed ----------------------------------------------------------------------------------------


async def test_machines_that_cost_nothing_yet_go_first(rig: Rig) -> None:
    (ready,) = await grown(rig)
    await rig.provider.increase_size("g", 1)
    await rig.turn(1)
    booting = next(r for r in rig.records() if r.name != ready.name)
    assert booting.state is State.BOOTING
    await order(rig, "+1", "a")
    (requested,) = rig.records(State.REQUESTED)
    assert [m["name"] for m in (await order(rig, "-1", "b"))["machines"]] == [requested.name]
    answer = await order(rig, "-1", "c")
    assert answer["machines"] == [{"name": booting.name, "was": "booting", "state": "deleting"}]
    await rig.settle(5)
    assert rig.alive() == [ready.name]


async def test_a_machine_that_runs_goes_only_by_an_explicit_word(rig: Rig) -> None:
    older = await grown(rig)
    newest = next(r for r in await grown(rig) if r not in older)
    await refused(rig, "-1", "only 0 of its 2 machines are not ready yet")
    await refused(rig, "-2", "1 machines are named", machines=[newest.name])
    await refused(rig, "-1", "the journal has no machine of this name or id", machines=["x"])
    await refused(rig, "+1", "machines are named only to remove them", machines=[newest.name])
    assert [m["name"] for m in (await order(rig, "-1", delete_ready=True))["machines"]] == [newest.name]
    answer = await order(rig, "-1", "b", machines=[older[0].machine_id])
    assert [m["name"] for m in answer["machines"]] == [older[0].name]
    await refused(rig, "-1", "it has a target of 0", machines=[newest.name])
    await rig.settle(5)
    assert rig.alive() == []


async def test_a_machine_of_another_group_is_not_removed(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, groups=(group(), group("other")))) as rig:
        answer = await order(rig, "+1", id_="other")
        await order(rig, "+1", "b")
        await refused(rig, "-1", "is of group other", machines=[answer["machines"][0]["name"]])


async def test_a_node_that_joined_while_its_cloud_says_booting_is_kept(tmp_path: Path) -> None:
    options = SimulatedOptions(boot_time=timedelta(hours=1))
    cluster = MemoryCluster()
    async with running(Rig(tmp_path, options=options)) as rig:
        rig.engine.reconfigure(rig.desired_state(), Joining(cluster=cluster))
        await rig.provider.refresh()
        await rig.provider.increase_size("g", 2)
        await rig.turn(1)
        used, unused = rig.records(State.BOOTING)
        cluster.join(used.name)
        await rig.turn(1)
        await refused(rig, "-2", "only 1 of its 2 machines are not ready yet")
        cluster.is_known = False
        await refused(rig, "-1", "only 0 of its 2 machines are not ready yet")
        cluster.is_known = True
        assert [m["name"] for m in (await order(rig, "-1"))["machines"]] == [unused.name]


async def test_what_the_operator_did_not_agree_to_is_not_removed(rig: Rig) -> None:
    await order(rig, "+1", "a")
    agreed = [m["name"] for m in preview(rig.engine, ScaleOrder(group="g", change="-1"))["machines"]]
    rig.clock.advance(1)
    await order(rig, "+1", "b")
    with pytest.raises(ConflictError, match="it has changed meanwhile"):
        await order(rig, "-1", "c", expected=agreed)
    with pytest.raises(PreconditionError):
        await order(rig, "-3", "d")
    assert await rig.provider.target_size("g") == 2
