"""The methods that an operator may call: what they refuse, and that a dry run is what happens unless told otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.admin.methods import engine_methods
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import State
from tests.engine.engine_rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    await made.start()
    yield made
    await made.engine.close()


async def call(rig: Rig, method: str, **request: object) -> Any:
    return await engine_methods(rig.engine, config_trouble=lambda: "line 3", transport="native")[method](request)


@pytest.mark.parametrize(
    ("method", "request_", "message"),
    [
        ("Status", {"gruop": "g"}, "unknown key 'gruop'; the keys are: group, machines"),
        ("Status", {"group": 1}, "group must be a text"),
        ("Status", {"machines": "yes"}, "machines must be true or false"),
        ("ListOrphans", {"x": 1}, "the keys are: none"),
        ("Explain", {}, "subject is missing"),
        ("Explain", {"subject": "g", "limit": 0}, "limit must be a whole number from 1 to 1000"),
        ("Explain", {"subject": "g", "limit": True}, "limit must be a whole number"),
        ("Pause", {}, "say either a group or a cloud"),
        ("Pause", {"group": "g", "cloud": "sim"}, "say either a group or a cloud"),
        ("Pause", {"group": "g", "reason": "x" * 2000}, "reason must be a text of at most 1000"),
        ("Adopt", {"group": "g", "machineIds": "i-1"}, "machineIds must be a list of texts"),
        ("Adopt", {"group": "g", "machineIds": [""]}, "machineIds must be a list of texts"),
        ("AdoptOrphans", {}, "say which machines"),
        ("ReleaseMachines", {}, "say which machines to release"),
        ("ReleaseMachines", {"group": "g", "machines": ["x"]}, "say which machines to release"),
        ("DeleteOrphans", {"machineIds": []}, "say which orphans"),
        ("Scale", {"group": "g"}, "change is missing"),
        ("Scale", {"group": "g", "change": "2"}, "'2' is not a change"),
        ("Scale", {"group": "g", "change": "+1", "dryRun": False}, "order is missing"),
        ("Scale", {"group": "g", "change": "+1", "expected": "m"}, "expected must be a list of texts"),
        ("Scale", {"group": "g", "change": "+1", "user": "x" * 200}, "user must be a text of at most 100"),
        ("Events", {"after": -1}, "after must be a whole number from 0"),
        ("Events", {"limit": 0}, "limit must be a whole number from 1 to 1000"),
        ("Events", {"kinds": ["gard"]}, "there are no events of type 'gard'; did you mean 'guard'"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    rig: Rig, method: str, request_: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await call(rig, method, **request_)


async def test_nothing_is_changed_unless_it_is_said_to_be_no_dry_run(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (record,) = rig.records(State.RUNNING)
    answer = await call(rig, "ReleaseMachines", machines=[record.name])
    assert answer["dryRun"] is True
    assert answer["items"][0]["machineId"] == record.machine_id
    assert rig.records(State.RUNNING) == [record]
    answer = await call(rig, "ReleaseMachines", machines=[record.name], dryRun=False)
    assert (answer["dryRun"], rig.records(State.RUNNING)) == (False, [])
    assert [each["kind"] for each in (await call(rig, "ListOrphans"))["orphans"]] == ["released"]


async def test_an_order_is_only_shown_unless_it_is_said_to_be_no_dry_run(rig: Rig) -> None:
    shown = await call(rig, "Scale", group="g", change="+1")
    assert (shown["dryRun"], shown["target"], rig.records()) == (True, 1, [])
    made = await call(rig, "Scale", group="g", change="+1", order="one", user="alice", dryRun=False)
    assert (made["dryRun"], made["order"], len(rig.records())) == (False, "one", 1)
    page = await call(rig, "Events", kinds=["scale"])
    assert [event["data"]["by"] for event in page["events"]] == ["alice"]
    assert page["cursor"] == max(event["id"] for event in (await call(rig, "Events"))["events"])


async def test_the_status_tells_what_is_wrong_with_the_configuration_file(rig: Rig) -> None:
    assert (await call(rig, "Status"))["configTrouble"] == "line 3"


async def test_the_status_tells_what_carries_the_calls(rig: Rig) -> None:
    assert (await call(rig, "Status"))["transport"] == "native"
