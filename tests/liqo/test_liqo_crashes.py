"""kill -9 after every single call of a create: called again with the same name, there is one of everything (law 3)."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cloudgraft.discovery.model import Network
from tests.conditions import until
from tests.liqo.liqo_kill_after_call import Order, cut_down
from tests.liqo.liqo_world import World, spec, world_of

MOST = 90  # calls of one create, far more than there are


@pytest.fixture(autouse=True)
def _what_died_is_swept_up() -> Iterator[None]:
    """A process that is killed leaves its connections to the system; a task that is cut down, to the collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def _dies_and_is_made(world: World, after: int, patch: pytest.MonkeyPatch) -> str:
    """What the last call was; empty when the create ended before that many."""
    blade = await cut_down(world, spec(), Order(after=after), patch)
    async with world.started() as driver:
        half_made = await driver.list()
        assert len(half_made) <= 1
        machine = await driver.create(spec())
        await world.has_node("node-1")
        assert [one.machine_id for one in await driver.list()] == [machine.machine_id]
        assert len(world.slices()) == 1, f"after {blade.calls[-1]}"
        await until(lambda: len(world.market.reserved) == 1, what=f"one reservation, after {blade.calls[-1]}")
        assert world.reserved() == [f"{world.slices()[0].split('/')[0]}:consumer/node-1:confirmed"]
        for plural in ("tenants", "serviceaccounts", "rolebindings"):
            assert len(world.objects(plural, at="cluster-a")) == 1, plural
        await driver.delete(machine)
        await until(lambda: not world.slices() and not world.market.reserved, what="nothing is left")
    return blade.calls[-1] if blade.has_fallen.is_set() else ""


async def _all_points(
    directory: Path, patch: pytest.MonkeyPatch, points: Sequence[int], network: Network | None
) -> int:
    counted = 0
    for after in points:
        home = directory / str(after)
        home.mkdir()
        async with world_of(home, "cluster-a", "cluster-b") as world:
            if network is not None:
                world.market.add("cluster-a", world.providers["cluster-a"].kubeconfig_text(), network=network)
            if not await _dies_and_is_made(world, after, patch):
                return counted
        counted += 1
    return counted


@pytest.mark.thorough
async def test_a_create_that_dies_in_the_middle_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _all_points(tmp_path, monkeypatch, (12, 18), None) == 2


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("network", [None, Network()], ids=["without network", "with network"])
async def test_a_create_may_die_after_every_single_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, network: Network | None
) -> None:
    points = range(1 + part, MOST, 6)
    assert 3 <= await _all_points(tmp_path, monkeypatch, points, network) < len(points), "all points were reached"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "order",
    [Order(before="DELETE"), Order(past=("DELETE", 0)), Order(past=("DELETE", 1))],
    ids=["before it takes its slice back", "once that is asked for", "while it waits for it"],
)
async def test_a_create_that_dies_while_a_cluster_refuses_leaves_nothing_there(
    world: World, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    world.script.say(cluster="cluster-a", deny="Full")
    blade = await cut_down(world, spec(), order, monkeypatch)
    assert blade.has_fallen.is_set()
    async with world.started() as driver:
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]
    assert world.reserved() == ["cluster-b:consumer/node-1:confirmed"]


@pytest.mark.thorough
async def test_two_processes_that_make_the_same_machine_make_one(world: World) -> None:
    """As when the lead changes and the old leader does not know it yet."""
    async with world.started() as one, world.started() as other:
        first, second = await asyncio.gather(one.create(spec()), other.create(spec()))
    assert first.machine_id == second.machine_id
    assert world.slices() == ["cluster-a/node-1"]
    assert world.reserved() == ["cluster-a:consumer/node-1:confirmed"]
