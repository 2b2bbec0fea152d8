"""kill -9 of node manager, discovery and front at every step of a peering and of its end: nothing is doubled or left.

The parts are real processes. Where a step is taken, in an API server or in one of the processes, it is asked at a gate
whether somebody dies now: before the request is carried out, or after that and before its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from e2e.processes import Program
from tests.conditions import until
from tests.liqo.sweep.liqo_kill_gate import Order
from tests.liqo.sweep.liqo_kill_world import PATIENCE, VICTIMS, KillWorld
from tests.sampling import sampled

GROWING = (
    "manager increase",
    "discovery reserve",
    "home create namespaces",
    "discovery credentials",
    "berlin create namespaces",
    "berlin create tenants",
    "berlin create serviceaccounts",
    "berlin create rolebindings",
    "berlin create secrets",
    "home create secrets",
    "home create resourceslices",
    "discovery confirm",
    "home patch nodes",
    "home patch virtualnodes",
)
SHRINKING = (
    "manager deleteNodes",
    "home delete resourceslices",
    "discovery release",
    "home delete secrets",
    "home patch foreignclusters",
    "discovery credentials",
    "berlin delete tenants",
    "berlin delete rolebindings",
    "berlin delete secrets",
    "berlin delete serviceaccounts",
    "berlin delete namespaces",
    "home delete namespaces",
)
PEERED = {"berlin namespace for home", "berlin tenant", "home namespace for berlin"}

# The world takes longer to set up than `make test` may take: `make test-thorough` has a sample, `make test-crash` all.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(4 * PATIENCE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who dies where. ``loses``: before the step is carried out, else after that."""

    victim: str
    step: str
    grows: bool
    loses: bool

    def __str__(self) -> str:
        way = "up" if self.grows else "down"
        return f"{way}-{self.victim}-{'before' if self.loses else 'after'}-{self.step.replace(' ', '-')}"


def _takes_part(victim: str, step: str) -> bool:
    """Whether it sends the request of a step, or carries it out. For others it makes no difference when they die."""
    where = step.partition(" ")[0]
    return victim in {where, "front" if where == "manager" else "manager"}


def _cases() -> Iterator[Case]:
    for grows, steps in ((True, GROWING), (False, SHRINKING)):
        for step in steps:
            for victim in VICTIMS:
                for loses in (True, False) if _takes_part(victim, step) else (False,):
                    yield Case(victim=victim, step=step, grows=grows, loses=loses)


async def test_the_steps_of_a_peering_and_of_its_end_are_all_in_the_sweep(world: KillWorld) -> None:
    """What is not in the lists would never be tried."""
    world.gate.arm(None)
    await world.scale(1, lambda: _is_one(world), "a node")
    await until(lambda: set(world.gate.steps) >= set(GROWING), what="every step was made, also the last one")
    assert set(world.gate.steps) == set(GROWING)
    world.gate.arm(None)
    await world.scale(0, lambda: _is_none(world), "nothing")
    await until(lambda: set(world.gate.steps) >= set(SHRINKING), what="every step was made, also the last one")
    # A patch of the node that the manager had not heard of yet is made again, whenever that is.
    assert set(world.gate.steps) - {"home patch nodes", "home patch virtualnodes"} == set(SHRINKING)
    world.is_good = True


@pytest.mark.parametrize("case", sampled(_cases(), str, rest=pytest.mark.exhaustive))
async def test_a_kill_at_any_step_doubles_nothing_and_leaves_nothing(world: KillWorld, case: Case) -> None:
    """One slice, one node, one confirmed reservation and one peering; and after scale-in none of them."""
    world.made.clear()
    if case.grows:
        await _with_a_kill(world, case, 1, lambda: _is_one(world), "a node in spite of it")
    else:
        world.gate.arm(None)
        await world.scale(1, lambda: _is_one(world), "a node")
    assert len(world.made) == 1, f"slices that were made for one node: {world.made}"
    if case.grows:
        world.gate.arm(None)
        await world.scale(0, lambda: _is_none(world), "nothing")
    else:
        await _with_a_kill(world, case, 0, lambda: _is_none(world), "nothing in spite of it")
    assert len(world.made) == 1, f"slices that were made for one node: {world.made}"
    world.is_good = True


async def _with_a_kill(
    world: KillWorld, case: Case, size: int, reached: Callable[[], Awaitable[bool]], what: str
) -> None:
    victim = world.programs[case.victim]
    world.gate.arm(Order(step=case.step, loses=case.loses, kill=victim.kill))
    is_back = asyncio.Event()

    async def restart() -> None:
        await until(world.gate.fallen.is_set, what=f"the step {case.step}", seconds=PATIENCE)
        Program.start(victim)  # not waiting until it serves: the others have to live with that
        is_back.set()

    async def is_reached() -> bool:
        return is_back.is_set() and await reached()

    restarting = asyncio.create_task(restart())
    try:
        await world.scale(size, is_reached, what)
    finally:
        restarting.cancel()
        await asyncio.wait([restarting])


async def _is_one(world: KillWorld) -> bool:
    return (
        len(world.slices()) == 1
        and list(world.nodes().values()) == [True]
        and set(world.peered()) == PEERED
        and await world.reserved() == [("berlin", "confirmed")]
    )


async def _is_none(world: KillWorld) -> bool:
    return not (world.slices() or world.nodes() or world.peered()) and not await world.reserved()
