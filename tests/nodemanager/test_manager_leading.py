"""Who leads, who waits, and what nobody waits for any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.engine import keyed_requests
from cloudgraft.nodemanager import feed
from cloudgraft.sdk.errors import NotFoundError, RateLimitedError, UnavailableError
from cloudgraft.web.client import Answer, WebClient
from tests.conditions import until
from tests.engine.engine_rig import Rig, fake, group
from tests.nodemanager.managed import Managed, managed, patient


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    async with managed(Rig(tmp_path, groups=(group("g"), group("h"))), tmp_path) as found:
        yield found


async def _waiting(there: Managed, client: WebClient) -> asyncio.Task[Answer]:
    """A request that waits for news."""
    known = str(there.manager.feed.revision)
    before = len(there.manager.feed._waiting)
    headers, query = {"If-None-Match": f'"{known}"'}, {"since": known, "wait": "50"}
    asking = asyncio.create_task(client.request("GET", "/v1/snapshot", headers=headers, query=query, timeout=60))
    await until(lambda: len(there.manager.feed._waiting) == before + 1)
    return asking


async def test_who_leads_no_more_sends_those_on_who_wait_and_lets_go_of_their_connections(there: Managed) -> None:
    """A connection that stays would lead to the same replica for ever, while another leads behind the same address."""
    async with there.client("front") as client:
        asking = await _waiting(there, client)
        there.rig.engine._is_serving = False
        there.manager.feed.wake()  # as cli/node_manager.py has it done when the engine is fenced
        with pytest.raises(UnavailableError) as refused:
            await asking
        assert refused.value.retry_after is not None
        await until(lambda: not there.listener._server.server_state.connections)  # type: ignore[union-attr]
        there.rig.engine._is_serving = True
        assert (await client.request("GET", "/v1/nodegroups")).status == 200


async def test_a_stop_does_not_wait_for_those_who_wait_for_news(there: Managed) -> None:
    async with there.client("front") as client:
        asking = [await _waiting(there, client) for _ in range(3)]
        there.manager.feed.close()
        async with asyncio.timeout(30):  # where the grace is longer
            await there.listener.close(300)
        assert {(await one).status for one in asking} == {200}


async def test_too_many_waiting_requests_are_told_to_retry(there: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_MOST_WAITING", 2)
    async with there.client("read-only") as client:
        asking = [await _waiting(there, client) for _ in range(2)]
        known = str(there.manager.feed.revision)
        with pytest.raises(RateLimitedError) as refused:
            await client.request("GET", "/v1/snapshot", headers={"If-None-Match": f'"{known}"'}, query={"wait": "9"})
        assert refused.value.retry_after == 5
        assert (await client.request("GET", "/v1/snapshot")).status == 200  # who does not wait is answered
        current = {"headers": {"If-None-Match": f'"{known}"'}, "query": {"wait": "0", "since": known}}
        assert (await client.request("GET", "/v1/snapshot", **current)).status == 304  # type: ignore[arg-type]
        there.manager.feed.wake()
        await asyncio.gather(*asking)


async def test_a_request_for_news_that_hangs_does_not_keep_a_refresh_from_being_up_to_date(there: Managed) -> None:
    """The connection is dead and nobody has noticed; or it leads to a replica that is cut off."""
    async with there.fronted(settings=patient(refresh_every=60.0)) as front:
        ask, hangs = front._link.news, asyncio.Event()

        async def news(since: object, wait: float) -> object:
            if wait:
                await hangs.wait()
            return await ask(since, wait)  # type: ignore[arg-type]

        front._link.news = news  # type: ignore[method-assign,assignment]  # the one of the background hangs from now on
        await there.rig.provider.increase_size("g", 1)
        await there.rig.provider.increase_size("g", 2)
        await front.refresh()
        assert await front.target_size("g") == 3


async def test_a_manager_that_answers_is_heard_of_even_if_nothing_is_new(there: Managed) -> None:
    """A Refresh does not fail for staleness while the manager says that the picture is the latest."""
    now = [0.0]
    front = there.front(settings=patient(refresh_every=60.0, max_staleness=60.0))
    front._clock = lambda: now[0]
    await front._read(0.0)
    now[0] = 100.0
    await front.refresh()
    assert front.age == 0.0
    await front.close()


async def test_a_snapshot_that_cannot_be_applied_does_not_end_the_reading(
    there: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with there.fronted() as front:
        take = front._views.take

        def broken(_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(front._views, "take", broken)
        await there.rig.provider.increase_size("g", 1)
        await until(lambda: "ZeroDivisionError" in front.trouble)
        monkeypatch.setattr(front._views, "take", take)
        await until(lambda: not front.trouble)
        assert await front.target_size("g") == 1


async def test_r45_a_change_whose_caller_has_left_is_not_made(there: Managed) -> None:
    async with there.client("front") as client:
        async with there.rig.engine.writer._lock:  # the journal is busy
            asking = asyncio.create_task(
                client.request(
                    "POST", "/v1/nodegroups/g:increase", json={"delta": 1}, headers={"Prefer": "wait=0.05"}, timeout=30
                )
            )
            await until(lambda: bool(there.rig.engine.writer._running) or asking.done())
            await asyncio.sleep(0.1)  # no condition: it is time that passes for the caller
        with pytest.raises(UnavailableError, match="gave up"):
            await asking
        assert await there.rig.provider.target_size("g") == 0
        made = await client.request(
            "POST", "/v1/nodegroups/g:increase", json={"delta": 1}, headers={"Prefer": "respond-async, wait=30"}
        )
        assert made.json["targetSize"] == 1


async def test_a_key_is_answered_also_when_its_group_is_no_more(there: Managed) -> None:
    async with there.client("front") as client:
        await client.request("POST", "/v1/nodegroups/h:increase", json={"delta": 1})
        one = (await there.rig.provider.instances("h"))[0]
        ask = {"json": {"nodes": [{"name": fake(one).name, "providerId": one.id}]}, "headers": {"Idempotency-Key": "k"}}
        first = await client.request("POST", "/v1/nodegroups/h:deleteNodes", **ask)  # type: ignore[arg-type]
        await there.rig.settle()
        await there.rig.reconfigure(group("g"))
        again = await client.request("POST", "/v1/nodegroups/h:deleteNodes", **ask)  # type: ignore[arg-type]
        assert again.json["targetSize"] == first.json["targetSize"] == 0
        with pytest.raises(NotFoundError):
            await client.request(
                "POST", "/v1/nodegroups/h:increase", json={"delta": 1}, headers={"Idempotency-Key": "l"}
            )


async def test_however_many_keys_there_are_only_so_many_are_kept(
    there: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_requests, "MOST_KEYS", 3)
    async with there.client("front") as client:
        for number in range(6):
            headers = {"Idempotency-Key": f"k{number}"}
            await client.request("POST", "/v1/nodegroups/g:decreaseTarget", json={"delta": -1}, headers=headers)
    engine = there.rig.engine
    kept = sorted(record.key for record in (await engine.journal.load()).requests)
    assert kept == sorted(key for _, key in engine.fleet.requests) == ["k3", "k4", "k5"]
