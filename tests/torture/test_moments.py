"""When a kill happens, what is reported about it, and when too few kills hit a call."""

from __future__ import annotations

import asyncio

import pytest

from cloudgraft.torture.moments import Coverage, Moments, patience
from cloudgraft.torture.plan import Kill, Moment


def kill(moment: Moment) -> Kill:
    return Kill(number=1, moment=moment, delay=0.0, with_children=False)


class Life:
    """Moments of one life, under load."""

    def __init__(self) -> None:
        self.moments = Moments(asyncio.Event())
        self._under_load = asyncio.Event()
        self._under_load.set()

    def hear(self, state: str, machine: str = "m-1") -> None:
        self.moments.hear({"kind": "state", "state": state, "machine": machine})

    async def reached(self, moment: Moment, seconds: float = 60.0) -> tuple[bool, Moment]:
        await self.moments.reached(kill(moment), self._under_load, lambda: seconds)
        return self.moments.came(kill(moment), is_changing=False)


async def test_a_kill_waits_for_its_call() -> None:
    life = Life()
    waiting = asyncio.create_task(life.reached(Moment.CREATE))
    await asyncio.sleep(0)
    life.hear("deleting", "m-2")
    await asyncio.sleep(0)
    assert not waiting.done()
    life.hear("creating")
    assert await waiting == (True, Moment.CREATE)


async def test_a_call_that_began_before_the_load_counts() -> None:
    life = Life()
    life.hear("creating")
    assert await life.reached(Moment.CREATE) == (True, Moment.CREATE)


async def test_a_kill_without_its_call_says_so() -> None:
    life = Life()
    assert await life.reached(Moment.CREATE, 0.0) == (False, Moment.BETWEEN)
    life.hear("deleting")
    assert await life.reached(Moment.CREATE, 0.0) == (False, Moment.DELETE)
    life.moments.begin_life()
    assert await life.reached(Moment.CREATE, 0.0) == (False, Moment.BETWEEN)


async def test_a_call_that_is_over_at_the_kill_is_not_called_under_way() -> None:
    life = Life()
    life.hear("creating")
    assert await life.reached(Moment.CREATE) == (True, Moment.CREATE)
    life.hear("booting")
    assert life.moments.came(kill(Moment.CREATE), is_changing=False) == (True, Moment.AFTER)
    assert life.moments.came(kill(Moment.CREATE), is_changing=True) == (True, Moment.CHANGE)


def test_late_lists_need_more_patience_within_the_time_of_the_run() -> None:
    quick = patience(list_delay=0.0, create_limit=2.0, seconds_left=600.0, kills_left=10)
    late = patience(list_delay=2.5, create_limit=2.0, seconds_left=600.0, kills_left=10)
    assert late - quick >= 2 * 2.5
    assert patience(list_delay=60.0, create_limit=120.0, seconds_left=600.0, kills_left=10) == 60.0
    assert patience(list_delay=60.0, create_limit=120.0, seconds_left=0.0, kills_left=1) == 5.0


@pytest.mark.parametrize(
    ("planned", "came", "missed", "why"),
    [
        (2, [Moment.CREATE, Moment.START], [], ""),
        (4, [Moment.CREATE, Moment.DELETE], [Moment.CREATE, Moment.CHANGE], ""),
        (3, [Moment.CREATE, Moment.ANY], [Moment.CREATE, Moment.CREATE], "only 1 of 3 kills that were to hit a create"),
        (4, [Moment.CREATE], [Moment.DELETE, Moment.CHANGE], "only 1 of 3 kills that were to hit a call"),
        (10, [Moment.CREATE] * 4, [], "the time was up after 4 of 10 kills"),
    ],
)
def test_too_few_hits_prove_too_little(planned: int, came: list[Moment], missed: list[Moment], why: str) -> None:
    coverage = Coverage(planned)
    for moments, has_come in ((came, True), (missed, False)):
        for moment in moments:
            coverage.add(kill(moment), has_come=has_come)
    found = coverage.why_too_thin(made=planned)
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_too_few_machines_prove_too_little() -> None:
    coverage = Coverage(4)
    for _ in range(4):
        coverage.add(kill(Moment.CREATE), has_come=True)
    assert coverage.why_too_thin(made=2) == ""
    assert coverage.why_too_thin(made=1).startswith("the cloud made only 1 machines in 4 kills")
