"""Nothing is ever given twice: not to two tasks, not to two processes, not when one of them is killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloudgraft.discovery.model import Reservation
from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import DeadlineError, NotFoundError, OutOfStockError, UnavailableError
from tests.discovery.core.markets import Place, beat, shape, spec

# A SQLite file that others hold for long, on a busy machine: whoever asks again gets what there is.
HELD_BY_OTHERS = (UnavailableError, DeadlineError)
_RIVAL = str(Path(__file__).with_name("rival.py"))


def _rival(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, _RIVAL, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )


async def test_two_processes_never_get_more_than_there_is(place: Place) -> None:
    discovery = await place.opened()
    await discovery.put_cluster(spec("a", capacity=shape(cpu="9")))
    rivals = [_rival("race", place.where, name, 8) for name in ("x", "y")]
    for rival in rivals:
        assert rival.stdout is not None
        assert await asyncio.to_thread(rival.stdout.readline) == "ready\n"
    outputs = await asyncio.gather(*(asyncio.to_thread(rival.communicate, "go\n") for rival in rivals))
    told = [json.loads(output[0]) for output in outputs]
    assert [rival.returncode for rival in rivals] == [0, 0]
    assert sum(one["got"] for one in told) == 9
    assert sum(one["refused"] for one in told) == 7
    place.clock.now = 0.0  # theirs is the real one, and holds of theirs are to be alive
    found = await discovery.reservations("")
    assert len(found) == len({one.owner for one in found}) == 9


async def test_tasks_of_several_servers_never_get_more_than_there_is(each_place: Place) -> None:
    """Also while heartbeats change what is free, and with two after one and the same reservation."""
    servers = [await each_place.opened() for _ in range(3)]
    await servers[0].put_cluster(spec("a", capacity={}, max_nodes=10))
    await servers[0].heartbeat("a", beat(cpu="7"))

    async def reserve(server: Discovery, owner: str) -> Reservation | None:
        while True:
            try:
                return await server.reserve("a", shape(cpu="1"), owner=owner, seconds=60)
            except OutOfStockError:
                return None
            except HELD_BY_OTHERS:
                continue

    async def heartbeat(server: Discovery) -> None:
        while True:
            try:
                return await server.heartbeat("a", beat(cpu="7"))
            except HELD_BY_OTHERS:
                continue

    results, _ = await asyncio.gather(
        asyncio.gather(*(reserve(server, f"us/m-{number // 2}") for number in range(20) for server in servers)),
        asyncio.gather(*(heartbeat(server) for server in servers)),
    )
    ids = {one.id for one in results if one is not None}
    assert len(ids) == 7
    for server in servers:
        assert {one.id for one in await server.reservations("")} == ids


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.thorough), "after"])
async def test_killed_in_mid_reservation_it_is_there_in_full_or_not_at_all(place: Place, when: str) -> None:
    """kill -9 around the COMMIT. Whoever asks again gets the one there is, and no second one."""
    discovery = await place.opened()
    place.clock.now = 4_000_000_000.0  # the other one's clock is the real one: a hold of its own is long over
    await discovery.put_cluster(spec("a", capacity=shape(cpu="1")))
    victim = _rival("die", place.where, "x", when)
    assert await asyncio.to_thread(victim.wait) == -9
    for pipe in (victim.stdin, victim.stdout):
        assert pipe is not None
        pipe.close()
    place.clock.now = 0.0
    found = await discovery.reservations("x/")
    assert len(found) == (1 if when == "after" else 0)
    again = await discovery.reserve("a", shape(cpu="1"), owner="x/m", seconds=60)
    assert [again.id] == ([one.id for one in found] or [again.id])
    with pytest.raises(OutOfStockError):
        await discovery.reserve("a", shape(cpu="1"), owner="y/m", seconds=60)
    place.clock.now = 4_000_000_000.0
    assert (await discovery.cluster("a")).nodes == 0
    await discovery.reserve("a", shape(cpu="1"), owner="y/m", seconds=60)


async def test_a_server_whose_clock_is_ahead_gives_nothing_away_that_another_can_still_confirm(place: Place) -> None:
    slow, ahead = await place.opened(), await place.opened()
    ahead._clock = lambda: place.clock.now + 3600
    await slow.put_cluster(spec("a", capacity=shape(cpu="1")))
    held = await slow.reserve("a", shape(cpu="1"), owner="us/m-1", seconds=60)
    await ahead.reserve("a", shape(cpu="1"), owner="us/m-2", seconds=60)
    with pytest.raises(NotFoundError, match="has expired"):
        await slow.confirm(held.id)
    assert [one.owner for one in await slow.reservations("")] == ["us/m-2"]
