"""Lists of the simulated cloud: pages, lag, and what a client may believe of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.sdk import InvalidArgumentError, UnavailableError
from cloudgraft.simcloud.records import Page, read_all
from tests.simcloud.sim_world import START, World

AT_ONCE = {"boot_time": timedelta(0), "delete_time": timedelta(0)}


async def all_of(world: World, limit: int) -> list[str]:
    async def fetch(cursor: str) -> Page[str]:
        page = world.cloud.page(limit, cursor)
        names = [machine.name for machine in page.machines]
        return Page(machines=names, count=page.count, more=page.more, cursor=page.cursor)

    return await read_all(fetch)


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 1000])
async def test_pages_of_any_size_show_every_machine_once_oldest_first(limit: int) -> None:
    world = World()
    names = [f"m-{number}" for number in range(7)]
    for name in names:
        world.create(name)
    assert await all_of(world, limit) == names


async def test_an_empty_cloud_is_one_empty_page() -> None:
    assert World().cloud.page(10) == Page(machines=[], count=0, more=False, cursor="")


async def test_what_comes_and_goes_between_two_pages_costs_no_other_machine_its_place() -> None:
    world = World(**AT_ONCE)
    ids = [world.create(f"m-{number}") for number in range(4)]
    first = world.cloud.page(2)
    world.clock.pass_(1)
    world.cloud.delete(ids[0])
    world.cloud.delete(ids[3])
    world.create("m-new")
    second = world.cloud.page(10, first.cursor)
    # All pages show the moment of the first: what went meanwhile is still shown, what came is not.
    assert [machine.name for machine in second.machines] == ["m-2", "m-3"]
    assert list(world.listed()) == ["m-1", "m-2", "m-new"]


def test_a_list_shows_the_cloud_as_it_was_before_its_lag() -> None:
    world = World(list_lag=timedelta(seconds=60), boot_time=timedelta(seconds=30), delete_time=timedelta(0))
    machine = world.create()
    assert world.listed() == {}
    world.clock.pass_(59)
    assert (world.listed(), world.states()) == ({}, {"m-1": "running"})
    world.clock.pass_(1)
    assert world.listed() == {"m-1": "pending"}
    world.clock.pass_(60)
    world.cloud.delete(machine)
    assert (world.listed(), world.states()) == ({"m-1": "running"}, {})
    world.clock.pass_(59)
    assert world.listed() == {"m-1": "running"}
    world.clock.pass_(1)
    assert world.listed() == {}


def test_the_lag_of_chaos_stands_above_that_of_the_options_and_may_vary() -> None:
    world = World(list_lag=timedelta(0))
    world.chaos(listLag=[0, 100], seed=5)
    world.create()
    world.clock.pass_(50)
    seen = {bool(world.listed()) for _ in range(100)}
    assert seen == {True, False}  # such a machine comes and goes, as behind replicas that lag


@pytest.mark.parametrize("machines", [1, 2, 5, 9])
async def test_half_a_page_betrays_itself(machines: int) -> None:
    world = World()
    for number in range(machines):
        world.create(f"m-{number}")
    world.chaos(halfPages={"next": 1})
    with pytest.raises(UnavailableError, match="not complete"):
        await all_of(world, 4)
    assert len(await all_of(world, 4)) == machines


async def test_half_a_page_somewhere_in_the_middle_betrays_itself_too() -> None:
    world = World()
    for number in range(9):
        world.create(f"m-{number}")
    world.chaos(halfPages={"after": 2, "next": 1})
    with pytest.raises(UnavailableError, match="not complete"):
        await all_of(world, 3)


async def test_a_short_list_lies_and_nobody_can_know() -> None:
    world = World()
    for number in range(4):
        world.create(f"m-{number}")
    world.chaos(shortLists={"next": 1})
    assert await all_of(world, 10) == ["m-0", "m-2"]
    assert len(await all_of(world, 10)) == 4


@pytest.mark.parametrize("cursor", ["x", "1", "1@", "@1", "1@nan", "1@inf", "1@-1", "1@1@1", "9" * 5000 + "@1", "é@1"])
def test_a_cursor_that_was_not_given_out_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cursor"):
        World().cloud.page(10, cursor)


@pytest.mark.parametrize(
    "pages",
    [
        [Page(machines=["a"], count=2, more=False)],
        [Page(machines=["a", "b"], count=1, more=False)],
        [Page(machines=["a"], count=1, more=True)],
        [Page(machines=["a"], count=1, more=True, cursor="c"), Page(machines=[], count=0, more=True, cursor="c")],
    ],
    ids=["fewer than it says", "more than it says", "no cursor", "a cursor again"],
)
async def test_a_list_that_is_not_whole_is_an_error_and_never_an_answer(pages: list[Page[str]]) -> None:
    rest = iter(pages)

    async def fetch(_cursor: str) -> Page[str]:
        return next(rest)

    with pytest.raises(UnavailableError, match="not complete"):
        await read_all(fetch)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["create", "delete", "wait"]), st.integers(0, 30)), max_size=40))
def test_a_list_is_the_truth_of_some_time_ago(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: with a lag of 20 s, a list shows what was there 20 s before."""
    world = World(list_lag=timedelta(seconds=20), boot_time=timedelta(seconds=7), delete_time=timedelta(seconds=11))
    truth: dict[float, dict[str, str]] = {START: {}}
    ids: list[str] = []
    for step, number in steps:
        if step == "create":
            ids.append(world.create(f"m-{len(ids)}"))
        elif step == "delete" and ids and any(m.machine_id == ids[number % len(ids)] for m in world.cloud.machines()):
            world.cloud.delete(ids[number % len(ids)])
        elif step == "wait":
            for _ in range(number):
                truth[world.clock.now] = world.states()
                world.clock.pass_(1)
        truth[world.clock.now] = world.states()
    for _ in range(20):
        world.clock.pass_(1)
        truth[world.clock.now] = world.states()
        assert world.listed() == truth.get(world.clock.now - 20, {})
