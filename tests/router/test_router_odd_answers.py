"""What clouds answer to a router when that is odd: it takes nothing for certain that is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloudgraft.sdk.driver import Machine, MachineSpec, PartialList
from cloudgraft.sdk.errors import CloudgraftError, InternalError, Retry, UnavailableError
from tests.router.routed import Place, a_shape, a_spec, router


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
