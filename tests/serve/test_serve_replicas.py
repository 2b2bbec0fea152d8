"""Several replicas on one PostgreSQL: one leads; it is killed, stopped and woken, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.sdk import DeadlineError, UnavailableError
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import Contents, Event, State
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.postgres import PostgresServer
from tests.serve import child
from tests.serve.relay import Relay
from tests.serve.route import Load, Route
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, postgresql, simulated, small

AT_REST = (State.RUNNING, State.GONE)
CARELESS = {"idempotency": "none"}


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.borrowed() as database:
        yield database


def replica(
    directory: Path,
    name: str,
    url: str,
    cloud: str,
    *,
    lease: str = "3s",
    lag: str = "0s",
    idempotency: str = "token",
    rollout: str = "",
) -> Server:
    """One of several servers, each with files of its own, and a lease as long as it is to lead undisturbed."""
    text = configuration(
        {"sim": simulated(cloud, idempotency=idempotency, listLag=lag)},
        [small()],
        store=postgresql(url, lease),
        admin={"listen": f"unix:{directory}/{name}.sock"},
    )
    if not rollout:
        return Server(directory / f"{name}.yaml", text)
    return Server(directory / f"{name}.yaml", text, target=child.run_in_rollout, extra=(rollout,))


def add_a_group(*servers: Server) -> None:
    """Changes the files of all replicas, as a ConfigMap does."""
    for server in servers:
        changed = json.loads(server.file.read_text())
        changed["nodeGroups"].append(small("late"))
        server.file.write_text(json.dumps(changed))
        server.send(signal.SIGHUP)
    for server in servers:
        server.says("the configuration was read again")


async def journal_of(url: str) -> tuple[Contents, list[Event]]:
    """What the database holds, and what happened; but not how far a leader's clock has come."""
    journal = SqlJournal.postgresql(url)
    await journal.open()
    try:
        contents, events = await journal.load(), await journal.events(EventQuery(limit=10_000))
        return replace(contents, progress=None, latest_at=0.0), list(events)
    finally:
        await journal.close()


async def check_that_it_waits(server: Server, leader: Server) -> None:
    status, reason = await server.readyz()
    assert (status, await server.health()) == (503, "NOT_SERVING")
    assert f"not the leader: process {leader.pid} on " in reason
    assert (await server.admin("Status"))["leaderTrouble"] == reason
    async with server.connected() as provider:
        for call in (provider.refresh(), provider.node_groups(), provider.increase_size("small", 1)):
            with pytest.raises(UnavailableError, match="not the leader"):
                await call


async def test_a_new_rollout_takes_over_and_no_call_fails(tmp_path: Path, url: str) -> None:
    with Cloud(tmp_path) as cloud, contextlib.ExitStack() as stack:
        old = stack.enter_context(replica(tmp_path, "a", url, cloud.url))
        await until(old.is_ready)
        new = stack.enter_context(replica(tmp_path, "b", url, cloud.url, rollout="new"))
        await until(new.is_ready)  # so that Kubernetes ends the old one
        async with new.connected() as provider:
            call = asyncio.create_task(provider.increase_size("small", 1))
            assert await asyncio.to_thread(old.stop) == 0
            await call
            assert (await targets(provider))["small"] == 1
        another = stack.enter_context(replica(tmp_path, "c", url, cloud.url, rollout="new"))
        status, reason = await another.readyz()
        assert status == 503
        assert f"process {new.pid} on " in reason
        assert ", rollout new (" in reason


@pytest.mark.thorough
async def test_leaders_killed_under_load_are_followed_in_seconds_and_nothing_is_lost_or_doubled(
    tmp_path: Path, url: str
) -> None:
    with Cloud(tmp_path) as cloud, contextlib.ExitStack() as stack:
        first = stack.enter_context(replica(tmp_path, "a", url, cloud.url, lease="5s"))
        await until(first.is_ready)
        others = [stack.enter_context(replica(tmp_path, name, url, cloud.url)) for name in ("b", "c")]
        for other in others:
            await check_that_it_waits(other, first)
        route = Route([first, *others])
        load = Load(route, "small")
        calling = asyncio.create_task(load.run())
        for _ in range(2):  # each time under way, until one is left
            await until(after(load, 30), seconds=30)
            victim = await route.leader()
            victim.kill()
            route.servers.remove(victim)
        await until(after(load, 30), seconds=30)
        load.is_over = True
        await calling
        last = await route.leader()
        assert last.says("elected leader")["epoch"] >= 3
        await check_the_books(url, cloud, load, last)
        assert last.stop() == 0


def after(load: Load, count: int) -> Callable[[], bool]:
    """When so many more calls were answered."""
    goal = load.answers + count
    return lambda: load.answers >= goal


async def check_the_books(url: str, cloud: Cloud, load: Load, server: Server) -> None:
    """What was answered, what the journal says, and what the cloud has: all three agree."""

    async def is_at_rest() -> bool:
        contents, _ = await journal_of(url)
        here = {r.machine_id: r.name for r in contents.machines if r.state is State.RUNNING}
        return all(record.state in AT_REST for record in contents.machines) and cloud.live() == here

    await until(is_at_rest, what="cloud and journal agree", seconds=30)
    contents, events = await journal_of(url)
    grown = sum(int(str(event.data["delta"])) for event in events if event.kind == "increase")
    assert load.grown <= grown <= load.grown + load.perhaps_grown
    assert grown == len(contents.machines)  # all that were asked for, and nothing else
    gone = {record.provider_id for record in contents.machines if record.state is State.GONE}
    assert load.deleted <= gone <= load.perhaps_deleted
    assert {machine["name"] for machine in cloud.ledger()} <= {record.name for record in contents.machines}
    assert not cloud.doubles()
    async with server.connected() as provider:
        assert await targets(provider) == {"small": grown - len(gone)}


@pytest.mark.thorough
async def test_a_leader_stopped_with_sigstop_does_nothing_when_it_wakes_and_its_successor_settles_first(
    tmp_path: Path, url: str
) -> None:
    """In a cloud whose create is not idempotent: whoever creates again without a look makes a second machine."""
    with Cloud(tmp_path, "--idempotency", "none") as cloud:
        async with contextlib.AsyncExitStack() as stack:
            tap = stack.enter_context(Relay(cloud.url))
            # A lease that a busy machine does not lose before it has ordered all three.
            old = stack.enter_context(replica(tmp_path, "old", url, tap.url, lease="8s", **CARELESS))
            await until(old.is_ready)
            autoscaler = await stack.enter_async_context(old.connected())
            cloud.chaos(hang=True)
            await autoscaler.increase_size("small", 3)
            await until(lambda: tap.count("POST") == 3, what="the cloud was asked for three")
            await until(lambda: tap.waiting == 4, what="a list hangs too: now it is not about to call")
            old.send(signal.SIGSTOP)
            cloud.chaos(listLag=6)
            await until(lambda: cloud.made() == 3, what="it made them, nobody takes the answer, no list shows them yet")
            new = stack.enter_context(replica(tmp_path, "new", url, cloud.url, lease="10m", lag="6s", **CARELESS))
            await until(new.is_ready, what="the other leads", seconds=30)
            async with new.connected() as provider:
                assert await targets(provider) == {"small": 3}
                await running(provider, "small", 3)
                assert cloud.made() == 3
                cloud.chaos()
                await provider.increase_size("small", 1)
                await running(provider, "small", 4)
            calls, before = len(tap.requests), await journal_of(url)
            late = asyncio.create_task(autoscaler.increase_size("small", 5))
            old.send(signal.SIGCONT)
            with pytest.raises((UnavailableError, DeadlineError)):  # refused, or its connection ended before that
                await late
            assert old.says("closed all connections, and listening again")
            old.says(f"not the leader: process {new.pid} on ")
            await check_that_it_waits(old, new)
            assert (len(tap.requests), await journal_of(url)) == (calls, before)
            add_a_group(old, new)
            async with new.connected() as provider:
                await provider.refresh()
                assert await targets(provider) == {"small": 4, "late": 0}
            assert new.stop() == 0
            await until(old.is_ready, what="it leads again", seconds=30)
            async with old.connected() as provider:
                assert await targets(provider) == {"small": 4, "late": 0}  # groups do not come and go with the lead
                await running(provider, "small", 4)
        assert (cloud.made(), cloud.doubles()) == (4, [])
