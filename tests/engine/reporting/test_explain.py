"""Why did it (not) scale: the verdict for every state of affairs, and what the journal remembers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.operations import pauses
from cloudgraft.engine.reporting.diagnosis import Case, reasons
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.report import CloudReport, ErrorReport, GroupReport, MachineReport, PauseReport
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.store.journal import EventQuery, JournalUnavailableError
from cloudgraft.store.records import Event, Scope, State
from tests.engine.engine_rig import Rig, group

GROUP = GroupReport(id="g", cloud="sim", target=2, max_size=10, is_served=True, states={"running": 2})
CLOUD = CloudReport(
    name="sim",
    driver="SimulatedDriver",
    is_up=True,
    error="",
    error_code="",
    down_since="",
    list_age=1.0,
    machines_listed=2,
    machines=2,
    orphans=0,
    is_ready=True,
    blocked="",
    held_back="",
    paused=None,
    calls_under_way=0,
)
CASE = Case(group=GROUP, cloud=CLOUD, machines=())


def failed(code: str, message: str = "why") -> MachineReport:
    return MachineReport(
        name="m",
        machine_id="",
        provider_id="",
        state="failed",
        age=1.0,
        state_age=1.0,
        error=ErrorReport(code=code, message=message, error_class=1),
        is_adopted=False,
        replaces="",
    )


def pause(scope: str) -> PauseReport:
    return PauseReport(scope=scope, name="x", since="2030-01-01T00:00:00Z", reason="lunch")


DOWN = replace(CLOUD, is_up=False, error="no route", error_code="unavailable", down_since="2030-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("case", "what", "todo"),
    [
        (CASE, "nothing is in its way: 2 running, target 2, of at most 10", ""),
        (replace(CASE, trouble="disk full"), "this server does not answer the autoscaler: disk full", "status"),
        (replace(CASE, group=replace(GROUP, paused=pause("group"))), "group x has been paused since", "resume x"),
        (replace(CASE, group=replace(GROUP, paused=pause("cloud"))), "cloud x has been paused", "resume --cloud x"),
        (replace(CASE, cloud=None), "cloud sim is not configured any more", "add it"),
        (replace(CASE, cloud=DOWN), "cloud sim cannot be used since 2030-01-01T00:00:00Z: no route", "by itself"),
        (replace(CASE, cloud=replace(CLOUD, blocked="two clusters")), "two clusters", ""),
        (replace(CASE, cloud=replace(CLOUD, is_ready=False)), "cloud sim has not been listed yet", "wait"),
        (replace(CASE, group=replace(GROUP, left_out="no shape")), "it is not served: no shape", "correct"),
        (
            replace(CASE, group=replace(GROUP, left_out="no shape"), is_offer_pending=True),
            "it is not served: no shape",
            "`cloudgraft call Refresh`",
        ),
        (
            replace(CASE, group=replace(GROUP, left_out="it has not told"), waits_for_cloud=True),
            "it is not served: it has not told",
            "wait for its cloud",
        ),
        (replace(CASE, group=replace(GROUP, is_served=False)), "it is not served yet", "next Refresh publishes it"),
        (replace(CASE, group=replace(GROUP, is_draining=True)), "it is no longer configured", "nodeGroups"),
        (replace(CASE, group=replace(GROUP, target=10)), "it is at its maximum of 10", "maxSize"),
        (replace(CASE, guard="maxMachines is 2"), "a guard refuses more machines: maxMachines is 2", "guards"),
        (replace(CASE, machines=[failed("out_of_stock")]), "a machine failed (out_of_stock): why", "other groups"),
        (replace(CASE, machines=[failed("x")] * 3), "3 machines failed (x): why", ""),
        # What fails counts, so the group is full: of what, is the reason.
        (replace(CASE, group=replace(GROUP, target=10), machines=[failed("x")] * 8), "8 machines failed (x): why", ""),
    ],
)
def test_the_verdict_says_what_is_in_the_way_and_what_to_do(case: Case, what: str, todo: str) -> None:
    first = reasons(case)[0]
    assert what in first.what
    assert todo in first.todo
    assert bool(first.todo) == bool(todo)


def test_the_most_important_comes_first_and_nothing_is_told_twice() -> None:
    case = replace(
        CASE,
        cloud=DOWN,
        guard="maxMachines is 2",
        group=replace(GROUP, paused=pause("group"), left_out="no route", states={"booting": 1, "deleting": 2}),
        machines=[failed("paused"), failed("guard"), failed("deadline")],
    )
    assert [reason.what.split(" ")[0:2] for reason in reasons(case)] == [
        ["group", "x"],
        ["cloud", "sim"],
        ["a", "guard"],
        ["a", "machine"],
        ["machines", "are"],
        ["2", "being"],
    ]


def test_a_group_that_is_fine_tells_when_it_was_last_asked_for_more() -> None:
    second = reasons(replace(CASE, asked_at="2030-01-01T00:00:00Z"))[1]
    assert second.what == "the autoscaler last asked for more at 2030-01-01T00:00:00Z"
    assert "status ConfigMap" in second.todo


def test_a_changed_configuration_that_waits_is_told_and_is_no_obstacle() -> None:
    told = [reason.what for reason in reasons(replace(CASE, is_config_pending=True))]
    assert told[0].startswith("nothing is in its way")
    assert "a changed configuration waits for the autoscaler's next Refresh" in told


def test_an_older_configuration_is_told_and_is_no_obstacle() -> None:
    told = reasons(replace(CASE, group=replace(GROUP, stale="no shape")))
    assert [reason.what for reason in told][0::2] == [
        "nothing is in its way: 2 running, target 2, of at most 10",
        "an older configuration of it is served: no shape",
    ]


# -- on a journal ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    settings = EngineSettings(guards=GuardLimits(max_machines=3))
    made = Rig(tmp_path, groups=(group(), group("h")), settings=settings)
    await made.start()
    yield made
    await made.engine.close()


async def test_what_the_autoscaler_last_asked_is_told_per_kind(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    await rig.provider.increase_size("g", 1)
    (record,) = rig.records(State.RUNNING)
    await rig.provider.delete_nodes("g", [NodeRef(name="x", provider_id=record.provider_id)])
    await rig.provider.decrease_target_size("g", -1)
    told = await explain(rig.engine, "g")
    assert [event.kind for event in told.asked] == ["increase", "delete", "decrease"]
    assert told.asked[0].message == "the autoscaler asked for 1 more"


async def test_a_guard_is_named_as_the_reason(rig: Rig) -> None:
    await rig.provider.increase_size("g", 4)
    await rig.settle(5)
    told = await explain(rig.engine, "h")
    assert told.verdict == "a guard refuses more machines: guards.maxMachines is 3 for all clouds"
    assert [m.error.code for m in (await explain(rig.engine, "g")).troubled if m.error] == ["guard"]


async def test_the_timeline_has_decisions_and_failures_of_the_group_and_of_its_cloud_only(rig: Rig) -> None:
    await rig.provider.increase_size("h", 1)
    rig.cloud.set_chaos(Chaos(stock={"small": 0}))
    await rig.provider.increase_size("g", 2)
    await rig.settle(2)
    await pauses.pause(rig.engine, Scope.GROUP, "h")
    rig.cloud.set_chaos(Chaos(list=Faults(unavailable=Odds(chance=1.0))))
    await rig.settle(2)
    told = [(event.kind, event.state, event.count) for event in (await explain(rig.engine, "g")).events]
    assert told == [
        ("configured", "", 1),
        ("cloud_ready", "", 1),
        ("increase", "", 1),
        ("state", "failed", 2),
        ("cloud_down", "", 1),
    ]


async def test_the_verdict_does_not_need_the_journal(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_query: EventQuery) -> list[Event]:
        raise JournalUnavailableError("the disk is gone")

    monkeypatch.setattr(rig.engine.journal, "events", away)
    told = await explain(rig.engine, "g")
    assert told.verdict.startswith("nothing is in its way")
    assert (told.events, told.events_trouble) == ([], "the disk is gone")
    with pytest.raises(NotFoundError, match="the disk is gone"):
        await explain(rig.engine, "x")


async def test_a_machine_that_is_forgotten_still_has_its_history(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.provider.decrease_target_size("g", -1)
    (record,) = rig.records()
    rig.clock.advance(rig.settings.keep_gone.total_seconds() + 1)
    await rig.engine.clean()
    told = await explain(rig.engine, record.name)
    assert told.verdict == "it is gone, and the journal has nothing of it but its history"
    assert [event.state for event in told.events] == ["requested", "gone"]
