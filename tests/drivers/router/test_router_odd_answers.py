"""What clouds answer to a router when that is odd: it takes nothing for certain that is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloudgraft.sdk.driver import Machine, MachineSpec, PartialList
from cloudgraft.sdk.errors import (
    CloudgraftError,
    InternalError,
    OutOfStockError,
    RateLimitedError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.list_budget import ListBudget
from tests.drivers.router.routed import Place, a_shape, a_spec, router


async def test_an_error_that_says_of_itself_that_the_outcome_is_unknown_never_falls_through() -> None:
    """Law 3: whatever it is called."""

    class HalfDoneError(UnavailableError):
        retry = Retry.SETTLE_FIRST

    rack, burst = Place(), Place()
    rack.refuses = HalfDoneError("it broke in the middle")
    with pytest.raises(CloudgraftError, match="rack: it broke") as raised:
        await router({"rack": rack, "burst": burst}).create(a_spec())
    assert raised.value.retry is Retry.SETTLE_FIRST
    assert burst.specs == []


async def test_a_final_error_never_falls_through_either() -> None:
    """It has failed for good, and may have been made: the next cloud would make a second one."""
    rack, burst = Place(), Place()
    rack.refuses = OutOfStockError("none left, it seems").as_final()
    with pytest.raises(OutOfStockError, match="rack: none left") as raised:
        await router({"rack": rack, "burst": burst}).create(a_spec())
    assert raised.value.is_final
    assert burst.specs == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [("soon", None), (math.nan, None), (-5, None), (math.inf, 3600), (1e9, 3600), (7200, 3600), (90, 90), (None, None)],
)
async def test_a_cloud_that_asks_to_be_left_alone_is_believed_within_reason(asked: Any, told: float | None) -> None:
    """Drivers are written by others: no word of theirs costs a create, or lets a cloud rest for ever."""
    rack, burst = Place(), Place()
    rack.refuses = OutOfStockError("none left", retry_after=asked)
    driver = router({"rack": rack, "burst": burst})
    clock = [1000.0]
    backend = driver._backends["rack"]
    backend._clock = lambda: clock[0]
    assert (await driver.create(a_spec("m-1"))).machine_id == "burst/id-0"
    for seconds, is_cooling in ((-1, True), (1, False)):
        clock[0] = 1000.0 + (told or 60) + seconds
        assert backend.is_cooling("any") is is_cooling
    burst.refuses = OutOfStockError("none left", retry_after=4000)
    with pytest.raises(OutOfStockError) as raised:
        await driver.create(a_spec("m-2"))
    assert raised.value.retry_after == (told or 3600)
    rack.refuses = RateLimitedError("slower", retry_after=asked)
    with pytest.raises(RateLimitedError) as limited:
        await driver.create(a_spec("m-3"))
    assert limited.value.retry_after == told


async def test_what_a_cloud_says_its_own_list_lacks_the_routers_list_lacks_too() -> None:
    class Sites(Place):
        async def list(self) -> Sequence[Machine]:
            return PartialList(await super().list(), complete_for=["north-"], is_whole=False)

    part = await router({"sites": Sites(), "burst": Place()}).list()
    assert isinstance(part, PartialList)
    assert not part.is_whole
    assert part.complete_for == ("sites/north-", "burst/")
    assert not part.tells_of("sites/south-1")


@pytest.mark.parametrize("answer", [None, ["x"], [Machine(name="m", machine_id="")]])
async def test_the_nonsense_of_one_cloud_does_not_cost_the_lists_of_the_others(answer: Any) -> None:
    """Law 6."""

    class Odd(Place):
        async def list(self) -> Sequence[Machine]:
            return answer  # type: ignore[no-any-return]  # that is what is tried

    burst = Place()
    driver = router({"odd": Odd(), "burst": burst})
    await burst.create(a_spec())
    part = await driver.list()
    assert isinstance(part, PartialList)
    assert [machine.machine_id for machine in part] == ["burst/id-0"]
    assert part.complete_for == ("burst/",)


async def test_an_answer_without_an_id_is_no_machine_of_the_router() -> None:
    class Nameless(Place):
        async def create(self, spec: MachineSpec) -> Machine:
            return Machine(name=spec.name, machine_id="")

    with pytest.raises(InternalError, match="without a machine_id"):
        await router({"odd": Nameless(), "burst": Place()}).create(a_spec())


async def test_what_a_cloud_says_of_its_own_shape_is_said_of_the_routers() -> None:
    sites = a_shape()
    sites = replace(sites, variants=(a_shape("north"), a_shape("south", memory="8Gi")), problem="no host is free")
    (shape,) = await router({"rack": Place(shapes=[sites]), "burst": Place()}).shapes()
    assert [one.name for one in shape.variants] == ["rack/small/north", "rack/small/south", "burst/small"]
    assert shape.problem == "cloud rack: no host is free"


async def test_a_backend_whose_list_has_no_end_does_not_use_up_the_bounds_of_others() -> None:
    rack, burst = Place(), Place()
    driver = router({"rack": rack, "burst": burst})
    await rack.create(MachineSpec(name="good", group="g"))
    for number in range(50):
        await burst.create(MachineSpec(name=f"m{number}", group="g"))
    with ListBudget(machines=10).applied():
        found = await driver.list()
    assert [machine.name for machine in found] == ["good"]
    assert isinstance(found, PartialList)
