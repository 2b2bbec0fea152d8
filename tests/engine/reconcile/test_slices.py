"""Work on thousands of machines is done in slices; what changes between two of them must not be missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cloudgraft.engine.groups.specs import CloudSettings, GuardLimits
from cloudgraft.engine.guards import tally
from cloudgraft.engine.machines.observation import Indexing
from cloudgraft.engine.machines.states import is_moving
from cloudgraft.engine.ownership.orphans import renamed
from cloudgraft.engine.reconcile.observer import SLICE
from cloudgraft.sdk.driver import Machine
from cloudgraft.store.records import Presence, State
from tests.engine.engine_rig import SETTINGS, Rig, group
from tests.engine.makers import a_record
from tests.engine.scripted_cloud import Cloud, desired_state, stepped
from tests.engine.scripted_cloud import group as cloud_group

T = TypeVar("T")

MOST = 10 * SLICE
GUARDED: CloudSettings = replace(SETTINGS, guards=GuardLimits(max_machines=MOST), max_calls=64)


async def test_machines_that_are_asked_for_while_the_guards_are_counted_count(tmp_path: Path) -> None:
    """Law 10: a count that takes several turns of the event loop must not forget what came in between."""
    rig = Rig(tmp_path, groups=[group(max_size=MOST)], cloud_settings=GUARDED)
    provider = await rig.start()
    await provider.increase_size("g", 3 * SLICE)
    counting = asyncio.create_task(rig.engine.workers["sim"].observer.count())
    await asyncio.sleep(0)
    await provider.increase_size("g", 7)
    await counting
    assert rig.engine.guard_usage.tallies["sim"].machines == 3 * SLICE + 7
    await provider.close()


async def test_what_has_changed_since_its_slice_was_counted_is_counted_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups=[group(max_size=MOST)], cloud_settings=GUARDED)
    provider = await rig.start()
    await provider.increase_size("g", 10)
    now, old = rig.clock.now(), rig.records()
    parts = [(some, tally(some, (), now)) for some in (old[:4], old[4:])]
    await provider.decrease_target_size("g", -3)
    await provider.increase_size("g", 2)
    rig.engine.workers["sim"].observer._counted(parts, now, now)
    counted, true = rig.engine.guard_usage.tallies["sim"], tally(rig.records(), (), now)
    assert (
        (counted.machines, counted.waiting, counted.orders) == (true.machines, true.waiting, true.orders) == (9, 9, 0)
    )
    assert counted.spend == pytest.approx(true.spend)
    await provider.close()


async def test_a_count_says_the_same_in_slices_as_in_one_go(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups=[group(max_size=MOST)], cloud_settings=GUARDED)
    provider = await rig.start()
    await provider.increase_size("g", 2 * SLICE + 1)
    await rig.turn(40)
    before = rig.engine.guard_usage.tallies["sim"]
    await rig.engine.workers["sim"].observer.count()
    assert rig.engine.guard_usage.tallies["sim"] == before
    assert before.machines == before.orders == 2 * SLICE + 1
    await provider.close()


@pytest.mark.parametrize("slice_", [1, 2, 3, 5])
def test_a_list_finds_all_machines_of_a_name(slice_: int) -> None:
    twins = [Machine(name="a", machine_id=id_) for id_ in ("1", "2", "4")]
    other = Machine(name="b", machine_id="3")
    machines = [twins[0], other, *twins[1:]]
    indexing = Indexing()
    for start in range(0, len(machines), slice_):
        indexing.add(machines[start : start + slice_])
    listing = indexing.listing(machines, began=0.0)
    assert list(listing.named("a")) == twins
    assert list(listing.named("b")) == [other]
    assert list(listing.named("c")) == []
    assert [listing.by_id[machine.machine_id] for machine in machines] == machines
    assert listing.machines is machines


async def test_others_have_their_turn_while_a_long_list_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 1: however long it is."""
    in_a_row, longest, total = 0, 0, 0

    def counted(work: Callable[..., T]) -> Callable[..., T]:
        def count(*given: Any) -> T:
            nonlocal in_a_row, longest, total
            size = max(len(each) for each in given if isinstance(each, list))
            in_a_row, total = in_a_row + size, total + size
            longest = max(longest, in_a_row)
            return work(*given)

        return count

    async def others() -> None:
        nonlocal in_a_row
        while True:
            in_a_row = 0
            await asyncio.sleep(0)

    cloud = Cloud()
    cloud.machines = {str(n): Machine(name=f"other-{n}", machine_id=str(n)) for n in range(10_000)}
    async with stepped(tmp_path, desired_state({"a": cloud}, cloud_group())) as case:
        monkeypatch.setattr("cloudgraft.engine.reconcile.observer.renamed", counted(renamed))
        monkeypatch.setattr(Indexing, "add", counted(Indexing.add))
        beside = asyncio.create_task(others())
        await case.engine.workers["a"].observer.observe()
        beside.cancel()
        listing = case.engine.workers["a"].observer.listing
    assert listing is not None
    assert len(listing.by_id) == len(listing.by_name) == 10_000
    assert (total, longest) == (20_000, 1000)


async def test_what_the_next_list_will_tell_about_is_known_without_a_search(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    provider = await rig.start()
    await provider.increase_size("g", 2)
    assert not rig.engine.fleet.moving["sim"], "no call was made yet"
    await rig.turn()
    assert len(rig.engine.fleet.moving["sim"]) == 2
    await rig.turn(40)
    assert not rig.engine.fleet.moving["sim"], "both run"
    await provider.close()


def test_a_failed_machine_is_of_interest_while_its_cloud_holds_something_of_it() -> None:
    failed = a_record(state=State.FAILED)
    assert is_moving(replace(failed, presence=Presence.PRESENT))
    assert not is_moving(replace(failed, presence=Presence.NONE))
