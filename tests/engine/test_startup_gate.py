"""What the first port says: no answer is better than one without machines that are ours (R3, R12, law 11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.sdk.driver import DriverTraits, Machine
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.types import AutoscalingOptions, NodeRef
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, lose_journal, stepped

LATE = DriverTraits(list_delay=timedelta(seconds=30))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = NodeRef(name="n", provider_id="cloud://n")
Call = Callable[[EngineProvider], Awaitable[object]]
CALLS: dict[str, Call] = {
    "NodeGroups": lambda p: p.node_groups(),
    "NodeGroupForNode": lambda p: p.node_group_for_node(NODE),
    "NodeGroupTargetSize": lambda p: p.target_size("g"),
    "NodeGroupNodes": lambda p: p.instances("g"),
    "NodeGroupTemplateNodeInfo": lambda p: p.template("g"),
    "NodeGroupGetOptions": lambda p: p.options("g", AutoscalingOptions()),
    "PricingNodePrice": lambda p: p.node_price(NODE, NOW, NOW),
    "NodeGroupIncreaseSize": lambda p: p.increase_size("g", 1),
    "NodeGroupDeleteNodes": lambda p: p.delete_nodes("g", [NODE]),
    "NodeGroupDecreaseTargetSize": lambda p: p.decrease_target_size("g", -1),
    "Refresh": lambda p: p.refresh(),
}


class Failing(Cloud):
    """Its lists fail while it is down."""

    is_down = False

    async def list(self) -> Sequence[Machine]:
        if self.is_down:
            raise UnavailableError("the cloud is down")
        return await super().list()


async def ids(case: Case) -> list[str]:
    return [each.id for each in await case.provider.node_groups()]


async def refused(case: Case) -> bool:
    try:
        await case.provider.node_groups()
    except UnavailableError:
        return True
    return False


@pytest.mark.parametrize("call", CALLS)
async def test_every_call_is_unavailable_before_a_new_cloud_was_listed(tmp_path: Path, call: str) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud(LATE)}, group())) as case:
        with pytest.raises(UnavailableError, match="the first list of cloud a"):
            await CALLS[call](case.provider)
        assert "the first list of cloud a" in case.engine.trouble()


async def test_groups_are_there_without_a_refresh_once_every_cloud_was_listed(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud(LATE)}, group())) as case:
        await case.turns(2)
        assert await refused(case)
        await case.turns(1)
        assert await ids(case) == ["g"]
        assert case.engine.trouble() == ""
        assert await case.provider.target_size("g") == 0
        await case.grow()


async def test_nodes_of_a_lost_journal_are_never_denied(tmp_path: Path) -> None:
    """R17: "not ours" for a machine of ours would make it an unmanaged node."""
    cloud = Cloud(LATE)
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.turns(3)
        (name,) = await case.grow()
        id_ = next(record.provider_id for record in case.machines() if record.name == name)
    lose_journal(tmp_path)
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        node, answers = NodeRef(name="n", provider_id=id_), set[str | None]()
        for _ in range(6):
            try:
                found = await case.provider.node_group_for_node(node)
                answers.add(found.id if found is not None else None)
            except UnavailableError:
                answers.add("refused")
            await case.turns(1)
        assert answers == {"refused", "g"}


async def test_a_cloud_that_is_never_listed_delays_the_others_for_a_while_only(tmp_path: Path) -> None:
    down, up = Failing(LATE), Cloud()
    plan = desired_state({"a": down, "b": up}, group("g", "a"), group("h", "b"))
    down.is_down = True
    async with stepped(tmp_path, plan) as case:
        await case.turns(11)
        with pytest.raises(UnavailableError, match=r"cloud a \(the cloud is down\).*2m0s"):
            await case.provider.refresh()
        await case.turns(1)
        assert await ids(case) == ["h"]
        assert case.engine.left_out()["g"] == "the cloud is down"
        down.is_down = False
        await case.turns(5)
        assert await ids(case) == ["h"], "R4: until the next Refresh"
        await case.provider.refresh()
        await case.turns(1)
        await case.provider.refresh()
        assert await ids(case) == ["g", "h"]


async def test_a_restart_with_a_good_journal_answers_at_once(tmp_path: Path) -> None:
    """Law 6, also while the cloud is down."""
    cloud = Failing(LATE)
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.turns(3)
        await case.grow(2)
    cloud.is_down = True
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        assert await ids(case) == ["g"]
        assert await case.provider.target_size("g") == 2
        assert case.engine.trouble() == ""


async def test_a_cloud_that_a_reload_adds_never_closes_the_server(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group())) as case:
        await case.turns(1)
        assert await ids(case) == ["g"]
        case.engine.reconfigure(desired_state({"a": Cloud(), "b": Cloud(LATE)}, group(), group("h", "b")))
        await case.provider.refresh()
        assert await ids(case) == ["g"]
        assert case.engine.trouble() == ""


async def test_a_cloud_that_a_reload_removes_is_not_waited_for(tmp_path: Path) -> None:
    up = Cloud()
    async with stepped(tmp_path, desired_state({"a": up, "b": Cloud(LATE)}, group(), group("h", "b"))) as case:
        assert await refused(case)
        case.engine.reconfigure(desired_state({"a": up}, group()))
        await case.turns(2, 1)
        assert await ids(case) == ["g"]


async def test_the_limit_of_the_wait_is_what_is_configured(tmp_path: Path) -> None:
    settings = EngineSettings(first_list_timeout=timedelta(seconds=15))
    async with stepped(tmp_path, desired_state({"a": Cloud(LATE)}, group(), settings=settings)) as case:
        await case.turns(1)
        assert await refused(case)
        await case.turns(1)
        assert await ids(case) == []
        assert case.engine.left_out()["g"] == "cloud a has not been listed yet"


async def test_status_and_explain_say_why_calls_are_refused(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud(LATE)}, group())) as case:
        report = await make_report(case.engine)
        assert (report.is_leader, report.opening_trouble) == (True, report.trouble)
        assert "the first list of cloud a" in report.trouble
        explained = await explain(case.engine, "g")
        assert "the first list of cloud a" in explained.verdict
        await case.turns(3)
        assert (await make_report(case.engine)).opening_trouble == ""
