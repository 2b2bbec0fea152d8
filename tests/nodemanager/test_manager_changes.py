"""Changes over REST: recorded, answered, and made once for each key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cloudgraft.sdk.errors import (
    AuthenticationError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
)
from cloudgraft.web.client import Answer, ClientTls, WebClient
from tests.engine.engine_rig import Rig, group
from tests.nodemanager.managed import Managed, managed

GROUPS = (group("g", min_size=1), group("other", max_size=3), group("odd/id with ü:increase"))


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    async with managed(Rig(tmp_path, groups=GROUPS), tmp_path) as found:
        yield found


async def _post(client: WebClient, verb: str, body: object, key: str = "", id_: str = "g") -> Answer:
    headers = {"Idempotency-Key": key} if key else {}
    return await client.request("POST", f"/v1/nodegroups/{quote(id_, safe='')}:{verb}", json=body, headers=headers)


async def _target(there: Managed, id_: str = "g") -> int:
    return await there.rig.provider.target_size(id_)


async def test_an_increase_is_recorded_and_answered_with_an_operation_for_each_machine(there: Managed) -> None:
    async with there.client("front") as client:
        answer = await _post(client, "increase", {"delta": 2}, "one")
        assert (answer.status, answer.json["targetSize"]) == (202, 2)
        states = [(each["kind"], each["state"]) for each in answer.json["operations"]]
        assert states == [("create", "waiting")] * 2
        await there.rig.settle()
        for operation in answer.json["operations"]:
            now = await client.request("GET", f"/v1/operations/{quote(operation['id'], safe='')}")
            assert now.json["state"] == "succeeded"


async def test_the_same_key_is_the_same_change_and_has_the_same_answer(there: Managed) -> None:
    async with there.client("front") as client:
        first = await _post(client, "increase", {"delta": 2}, "one")
        again = await _post(client, "increase", {"delta": 2}, "one")
        assert again.json == first.json
        assert await _target(there) == 2
        await _post(client, "increase", {"delta": 2}, "two")
        await _post(client, "increase", {"delta": 2})
        assert await _target(there) == 6


async def test_ten_requests_at_once_with_one_key_are_one_change(there: Managed) -> None:
    async with there.client("front") as client:
        answers = await asyncio.gather(*(_post(client, "increase", {"delta": 1}, "one") for _ in range(10)))
        assert {answer.json["operations"][0]["id"] for answer in answers} == {answers[0].json["operations"][0]["id"]}
        assert await _target(there) == 1


async def test_a_key_for_something_else_is_refused_and_keys_of_others_are_others(there: Managed) -> None:
    async with there.client("front") as client, there.client("operator") as operator:
        await _post(client, "increase", {"delta": 1}, "one")
        with pytest.raises(InvalidArgumentError, match="Idempotency-Key was used"):
            await _post(client, "increase", {"delta": 2}, "one")
        with pytest.raises(InvalidArgumentError, match="Idempotency-Key was used"):
            await _post(client, "increase", {"delta": 1}, "one", "other")
        await _post(operator, "increase", {"delta": 2}, "one")
        assert await _target(there) == 3


async def test_a_key_outlives_a_restart_and_is_forgotten_after_a_day(there: Managed) -> None:
    rig = there.rig
    async with there.client("front") as client:
        await _post(client, "increase", {"delta": 1}, "one")
        assert set(rig.engine.fleet.requests) == {("the front", "one")}
        rig.engine.fleet.requests.clear()
        rig.engine.groups.load(await rig.engine.journal.load())  # as a restart reads it
        await _post(client, "increase", {"delta": 1}, "one")
        assert await _target(there) == 1
        rig.clock.advance(86_401)
        await _post(client, "decreaseTarget", {"delta": -9}, "two")
        assert set(rig.engine.fleet.requests) == {("the front", "two")}
        assert len((await rig.engine.journal.load()).requests) == 1


async def test_what_is_refused_leaves_no_key_behind(there: Managed) -> None:
    async with there.client("front") as client:
        with pytest.raises(PreconditionError):
            await _post(client, "increase", {"delta": 99}, "one")
        await _post(client, "increase", {"delta": 1}, "one")
        assert await _target(there) == 1


async def test_bug_10_the_maximum_holds_also_when_many_ask_at_once(there: Managed) -> None:
    async with there.client("front") as client:
        calls = (_post(client, "increase", {"delta": 1}, f"{n}", "other") for n in range(8))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, PreconditionError) for answer in answers) == 5
        assert await _target(there, "other") == 3


async def test_bug_1_an_error_does_not_keep_later_changes_from_being_made(there: Managed) -> None:
    async with there.client("front") as client:
        for n in range(3):
            with pytest.raises(PreconditionError):
                await _post(client, "increase", {"delta": 99}, f"too many {n}".replace(" ", "-"))
            with pytest.raises(InvalidArgumentError):
                await _post(client, "deleteNodes", {"nodes": [{"providerId": "strange://x"}]})
            await _post(client, "increase", {"delta": 1}, f"{n}")
        assert await _target(there) == 3


async def test_bug_7_nodes_that_the_autoscaler_made_up_are_found_and_deleted_by_their_ids(there: Managed) -> None:
    async with there.client("front") as client:
        await _post(client, "increase", {"delta": 2})
        ids = [instance.id for instance in await there.rig.provider.instances("g")]
        fake = {"name": ids[0], "providerId": ids[0]}
        found = await client.request("POST", "/v1/nodes:lookup", json=fake)
        assert found.json == {"nodeGroup": "g"}
        answer = await _post(client, "deleteNodes", {"nodes": [fake]})
        assert answer.json["targetSize"] == 1
        with pytest.raises(InvalidArgumentError, match="nothing was deleted"):  # and never counts in another group
            await _post(client, "deleteNodes", {"nodes": [{"name": ids[1], "providerId": ids[1]}]}, id_="other")
        assert (await _target(there), await _target(there, "other")) == (1, 0)
        stranger = await client.request("POST", "/v1/nodes:lookup", json={"name": "control-plane"})
        assert stranger.json == {"nodeGroup": None}


async def test_r58_deleting_below_the_minimum_is_done(there: Managed) -> None:
    async with there.client("front") as client:
        await _post(client, "increase", {"delta": 1})
        await there.rig.settle()
        node = {"providerId": (await there.rig.provider.instances("g"))[0].id}
        answer = await _post(client, "deleteNodes", {"nodes": [node]}, "one")
        assert answer.json["targetSize"] == 0
        assert [(each["kind"], each["state"]) for each in answer.json["operations"]] == [("delete", "running")]
        assert (await _post(client, "deleteNodes", {"nodes": [node]}, "two")).json["operations"] == []


async def test_r62_a_decrease_gives_up_what_was_never_ordered_and_is_fine_otherwise(there: Managed) -> None:
    async with there.client("front") as client:
        await _post(client, "increase", {"delta": 2})
        assert (await _post(client, "decreaseTarget", {"delta": -1})).json["targetSize"] == 1
        await there.rig.settle()
        assert (await _post(client, "decreaseTarget", {"delta": -1})).json["targetSize"] == 1
        with pytest.raises(InvalidArgumentError):
            await _post(client, "decreaseTarget", {"delta": 1})


async def test_a_group_may_have_any_id(there: Managed) -> None:
    odd = GROUPS[2].id
    async with there.client("front") as client:
        answer = await _post(client, "increase", {"delta": 1}, id_=odd)
        assert answer.json["operations"][0]["group"] == odd
        size = await client.request("GET", f"/v1/nodegroups/{quote(odd, safe='')}/size")
        assert size.json["target"] == 1


@pytest.mark.parametrize("verb", ["increase", "decreaseTarget", "deleteNodes"])
async def test_who_may_only_read_changes_nothing(there: Managed, verb: str) -> None:
    body = {"nodes": [{"name": "x"}]} if verb == "deleteNodes" else {"delta": 1 if verb == "increase" else -1}
    async with there.client("read-only") as client:
        with pytest.raises(PermissionDeniedError, match="this needs front or operator"):
            await _post(client, verb, body)
        assert (await client.request("GET", "/v1/nodegroups")).json["items"][0]["id"] == "g"
    async with there.client("front") as client:
        with pytest.raises(NotFoundError):
            await _post(client, verb, body, id_="no-such-group")


async def test_changes_and_refusals_are_in_the_audit_log_and_no_body_is(there: Managed) -> None:
    async with there.client("front") as client, there.client("read-only") as reader:
        await _post(client, "increase", {"delta": 1}, "one")
        await client.request("GET", "/v1/nodegroups")
        with pytest.raises(PermissionDeniedError):
            await _post(reader, "increase", {"delta": 1})
    lines = [json.loads(line) for line in (there.directory / "audit.log").read_text().splitlines()]
    told = [(line["caller"], line["method"], line["path"], line["status"]) for line in lines]
    path = "/v1/nodegroups/g:increase"
    assert told == [("the front", "POST", path, 202), ("the read-only", "POST", path, 403)]


async def test_no_route_answers_a_stranger_except_health(there: Managed) -> None:
    """Every route that the description has, with every method it has."""
    async with there.client("operator") as client:
        paths = (await client.request("GET", "/openapi.json")).json["paths"]
    async with WebClient(there.url, tls=ClientTls(ca=there.bundle.ca_cert), timeout=60) as stranger:
        open_ones = []
        for path in [*paths, "/openapi.json", "/docs", "/nothing"]:
            for method in [*paths.get(path, {}), "get", "delete"]:
                try:
                    await stranger.request(method.upper(), path.replace("{group}", "g").replace("{operation}", "x"))
                except AuthenticationError:
                    continue
                except Exception as error:  # noqa: BLE001 - anything but a refusal is told
                    open_ones.append((method, path, repr(error)))
                else:
                    open_ones.append((method, path, "answered"))
    assert {path for _, path, _ in open_ones} == {"/healthz", "/readyz"}
