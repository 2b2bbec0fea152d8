"""A cloud of a router that asks to be left alone for a while is left alone, and costs nobody a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cloudgraft.drivers.router.driver import RouterDriver
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.sdk.driver import Machine, PartialList
from cloudgraft.sdk.errors import CloudgraftError, RateLimitedError, UnavailableError
from cloudgraft.store.records import State
from tests.drivers.router.routed import Place, a_spec, router
from tests.engine.engine_rig import HandClock
from tests.engine.scripted_cloud import desired_state, group, stepped

PAUSE = "the pause that it asked for is not over: "  # words about another call


class Counting(Place):
    """Knows how often it was listed."""

    lists = 0

    async def list(self) -> Sequence[Machine]:
        self.lists += 1
        return await super().list()


def routed(rack: Place, burst: Place, clock: HandClock) -> RouterDriver:
    driver = router({"rack": rack, "burst": burst})
    for backend in driver._backends.values():
        backend._clock = clock
    return driver


@pytest.mark.parametrize("error", [RateLimitedError, UnavailableError])
async def test_a_cloud_is_not_listed_before_the_time_it_asked_for_while_others_are(
    error: type[CloudgraftError],
) -> None:
    rack, burst, clock = Counting(), Counting(), HandClock()
    driver = routed(rack, burst, clock)
    await driver.create(a_spec())
    rack.hides = error("slower", retry_after=90)
    for seconds in (0, 10, 79):
        clock.advance(seconds)
        listed = await driver.list()
        assert isinstance(listed, PartialList)
        assert (list(listed), listed.complete_for, listed.is_whole) == ([], ("burst/",), False)
    assert (rack.lists, burst.lists) == (1, 3)
    rack.hides = None
    clock.advance(2)
    listed = await driver.list()
    assert [machine.machine_id for machine in listed] == ["rack/id-0"]
    assert (rack.lists, burst.lists) == (2, 4)


async def test_when_all_clouds_want_to_be_left_alone_the_router_says_for_how_much_longer() -> None:
    rack, burst, clock = Counting(), Counting(), HandClock()
    driver = routed(rack, burst, clock)
    rack.hides, burst.hides = RateLimitedError("slower", retry_after=90), RateLimitedError("later", retry_after=50)
    for left, told in ((50, "rack: slower; burst: later"), (20, f"rack: {PAUSE}slower; burst: {PAUSE}later")):
        with pytest.raises(RateLimitedError, match=told) as raised:
            await driver.list()
        assert raised.value.retry_after == left
        clock.advance(30)
    assert (rack.lists, burst.lists) == (1, 1)


@pytest.mark.parametrize("error", [RateLimitedError("slower"), UnavailableError("no route to host")])
async def test_a_cloud_that_asks_for_no_time_is_listed_each_time(error: CloudgraftError) -> None:
    rack, clock = Counting(), HandClock()
    driver = routed(rack, Counting(), clock)
    rack.hides = error
    for count in (1, 2, 3):
        await driver.list()
        assert rack.lists == count


async def test_machines_of_a_cloud_that_is_left_alone_stay_as_they_are(tmp_path: Path) -> None:
    """Law 5: a list that was not made says nothing of any machine."""
    rack, burst, clock = Counting(), Counting(), HandClock()
    wanted = group("g", "any", machine={"shape": "any"}, template=TemplateDeclaration())
    plan = desired_state({"any": routed(rack, burst, clock)}, wanted)
    async with stepped(tmp_path, plan, clock=clock) as case:
        names = await case.grow(2)
        rack.hides = RateLimitedError("slower", retry_after=600)
        await case.turns(1)
        before = rack.lists
        await case.turns(20)
        assert [record.name for record in case.machines(State.RUNNING)] == sorted(names)
        assert await case.provider.target_size("g") == 2
        assert rack.lists == before
        await case.grow(1)
        assert len(burst.machines) == 1, "and new ones come from the others"
        rack.hides = None
        await case.turns(60)
        assert rack.lists > before
        kept = [record.machine_id for record in case.machines(State.RUNNING) if record.name in names]
        assert sorted(kept) == ["rack/id-0", "rack/id-1"]
        assert (rack.deleted, burst.deleted) == ([], [])


async def test_a_create_that_was_one_too_many_puts_off_those_of_other_machines_too() -> None:
    """No dearer cloud is used for it, and the cloud is not asked in vain."""
    rack, burst, clock = Place(), Place(), HandClock()
    driver = routed(rack, burst, clock)
    rack.refuses = RateLimitedError("slower", retry_after=30)
    for name, left, told in (("m-1", 30, ""), ("m-2", 30, PAUSE), ("m-3", 10, PAUSE)):
        with pytest.raises(RateLimitedError, match=f"rack: {told}slower") as raised:
            await driver.create(a_spec(name))
        assert raised.value.retry_after == left
        if name == "m-2":
            clock.advance(20)
    assert (len(rack.specs), len(burst.specs)) == (1, 0)
    assert isinstance(await driver.list(), PartialList), "it is listed all the same"
    rack.refuses = None
    clock.advance(11)
    assert (await driver.create(a_spec("m-1"))).machine_id == "rack/id-0"
