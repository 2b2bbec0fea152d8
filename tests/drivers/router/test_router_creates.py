"""Which cloud makes a machine: in order, by price, and never two of them for one intent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from cloudgraft.drivers.router.backend import Backend, Cloud, check_alike, combined
from cloudgraft.drivers.router.driver import RouterDriver
from cloudgraft.drivers.router.options import Order
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership, PartialList, ProviderIdBy
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from tests.drivers.router.routed import Place, a_shape, a_spec, an_hour, options, router


@pytest.mark.parametrize(
    "error",
    [
        OutOfStockError("no more"),
        QuotaExceededError("no more"),
        UnavailableError("503"),
        AuthenticationError("expired"),
        PermissionDeniedError("no"),
        PreconditionError("not now"),
    ],
    ids=lambda error: error.slug,
)
async def test_what_certainly_made_nothing_falls_through_to_the_next_within_one_create(error: CloudgraftError) -> None:
    rack, burst = Place(), Place()
    rack.refuses = error
    driver = router({"rack": rack, "burst": burst})
    machine = await driver.create(a_spec())
    assert machine.machine_id == "burst/id-0"
    assert machine.provider_id == burst.machines["id-0"].provider_id
    assert (len(rack.specs), len(burst.specs)) == (1, 1)
    assert burst.specs[0].settings == {"shape": "small"}
    assert burst.specs[0].tags == {"t": "m-1"}


@pytest.mark.parametrize(
    "error",
    [
        DeadlineError("no answer"),
        InternalError("500"),
        CloudgraftError("what?"),
        RateLimitedError("slower", retry_after=3.0),
        ConflictError("meanwhile"),
        InvalidArgumentError("no such image"),
        AlreadyExistsError("taken"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_may_have_made_something_or_wants_a_person_never_falls_through(error: CloudgraftError) -> None:
    """Law 3."""
    rack, burst = Place(), Place()
    rack.refuses = error
    driver = router({"rack": rack, "burst": burst})
    with pytest.raises(CloudgraftError, match=r"^rack: ") as raised:
        await driver.create(a_spec())
    assert raised.value.slug == error.slug
    assert raised.value.retry_after == error.retry_after
    assert burst.specs == []


async def test_an_exception_that_nobody_knows_never_falls_through() -> None:
    class Broken(Place):
        async def create(self, spec: MachineSpec) -> Machine:
            raise KeyError(spec.name)

    burst = Place()
    with pytest.raises(InternalError, match="KeyError"):
        await router({"rack": Broken(), "burst": burst}).create(a_spec())
    assert burst.specs == []


async def test_a_cloud_that_hangs_is_given_up_after_its_own_time_and_never_falls_through() -> None:
    class Hanging(Place):
        async def create(self, spec: MachineSpec) -> Machine:
            await asyncio.get_running_loop().create_future()
            raise AssertionError(spec.name)

    burst = Place()
    driver = router({"rack": Hanging(DriverTraits(create_timeout=timedelta(milliseconds=20))), "burst": burst})
    with pytest.raises(DeadlineError, match="rack: cloud rack did not answer create within"):
        await driver.create(a_spec())
    assert burst.specs == []
    assert (await driver.create(a_spec("m-2"))).machine_id == "burst/id-0", "the next one need not wait for it"


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((OutOfStockError("a"), OutOfStockError("b")), OutOfStockError),
        ((QuotaExceededError("a"), QuotaExceededError("b")), QuotaExceededError),
        ((UnavailableError("a"), OutOfStockError("b")), OutOfStockError),
        ((AuthenticationError("a"), UnavailableError("b")), UnavailableError),
        ((AuthenticationError("a"), PermissionDeniedError("b")), AuthenticationError),
    ],
)
async def test_when_all_refuse_the_error_names_each_and_is_of_the_class_that_helps_most(
    errors: Sequence[CloudgraftError], expected: type[CloudgraftError]
) -> None:
    rack, burst = Place(), Place()
    rack.refuses, burst.refuses = errors
    with pytest.raises(CloudgraftError, match="rack: a; burst: b") as raised:
        await router({"rack": rack, "burst": burst}).create(a_spec())
    assert type(raised.value) is expected


async def test_a_cloud_that_refused_is_asked_after_the_others_until_it_has_room_again() -> None:
    rack, burst = Place(), Place()
    rack.refuses = OutOfStockError("none left")
    driver = router({"rack": rack, "burst": burst})
    await driver.create(a_spec("m-1"))
    await driver.create(a_spec("m-2"))
    assert len(rack.specs) == 1
    burst.refuses = OutOfStockError("none left")
    rack.refuses = None
    assert (await driver.create(a_spec("m-3"))).machine_id == "rack/id-0", "last is not never"
    burst.refuses = None
    assert (await driver.create(a_spec("m-4"))).machine_id == "rack/id-1", "it has room again"


def test_a_refusal_is_forgotten_after_its_time() -> None:
    now = 100.0
    backend = Backend("rack", Cloud(make=Place), list_timeout=timedelta(seconds=1), clock=lambda: now)
    backend.cool_down("any", 60)
    assert (backend.is_cooling("any"), backend.is_cooling("other")) == (True, False)
    now = 161.0
    assert not backend.is_cooling("any")


async def test_the_cheapest_is_asked_first_and_one_without_a_price_last() -> None:
    dear, cheap, silent = Place(), Place(), Place()
    dear.asked_prices, cheap.asked_prices = [an_hour("0.9")], [an_hour("0.1")]
    driver = router({"silent": silent, "dear": dear, "cheap": cheap}, order=Order.CHEAPEST)
    await driver.prices()
    assert (await driver.create(a_spec("m-1"))).machine_id.startswith("cheap/")
    cheap.refuses = OutOfStockError("none left")
    assert (await driver.create(a_spec("m-2"))).machine_id.startswith("dear/")
    dear.refuses = OutOfStockError("none left")
    assert (await driver.create(a_spec("m-3"))).machine_id.startswith("silent/")


async def test_a_price_of_the_file_counts_instead_of_the_clouds_and_equal_ones_go_by_their_place() -> None:
    one, other = Place(), Place()
    one.asked_prices, other.asked_prices = [an_hour("0.9")], [an_hour("0.1")]
    driver = router({"one": one, "other": other}, order=Order.CHEAPEST, prices={"one": "0.1"})
    await driver.prices()
    assert (await driver.create(a_spec())).machine_id.startswith("one/")


async def test_the_price_is_that_of_the_dearest_and_none_when_one_is_not_known() -> None:
    """Law 10: what may have to be paid."""
    rack, burst = Place(), Place()
    rack.asked_prices, burst.asked_prices = [an_hour("0.01")], [an_hour("0.5")]
    assert await router({"rack": rack, "burst": burst}).prices() == [an_hour("0.5", "any")]
    rack.asked_prices = []
    assert await router({"rack": rack, "burst": burst}).prices() == []
    assert await router({"rack": rack, "burst": burst}, prices={"rack": "0"}).prices() == [an_hour("0.5", "any")]
    rack.asked_prices = [an_hour("0.01", currency="USD")]
    with pytest.raises(InvalidArgumentError, match="USD in cloud rack and EUR in cloud burst"):
        await router({"rack": rack, "burst": burst}).prices()


async def test_labels_and_taints_of_the_group_go_to_clouds_that_put_them_on_nodes_themselves() -> None:
    rack, burst = Place(), Place()
    clouds = {"rack": Cloud(make=lambda: rack), "burst": Cloud(make=lambda: burst, takes=frozenset({"labels"}))}
    driver = RouterDriver(options("rack", "burst"), clouds)
    rack.refuses = OutOfStockError("none left")
    await driver.create(a_spec(labels={"pool": "any"}, taints=[]))
    assert rack.specs[0].settings == {"shape": "small"}
    assert burst.specs[0].settings == {"shape": "small", "labels": {"pool": "any"}}


async def test_a_machine_is_marked_where_it_is() -> None:
    rack, burst = Place(), Place()
    driver = router({"rack": rack, "burst": burst})
    await driver.mark(Machine(name="m-1", machine_id="burst/a"), {"t": "m-1"})
    assert (rack.machines, burst.machines["a"].tags) == ({}, {"t": "m-1"})
    with pytest.raises(PreconditionError):
        await driver.mark(Machine(name="m-1", machine_id="old/x"), {})


async def test_a_machine_is_deleted_where_it_is_and_one_of_a_cloud_that_is_not_used_any_more_is_not_called_gone() -> (
    None
):
    rack, burst = Place(), Place()
    driver = router({"rack": rack, "burst": burst})
    await driver.delete(Machine(name="m-1", machine_id="burst/a/b"))
    assert (rack.deleted, burst.deleted) == ([], ["a/b"])
    with pytest.raises(PreconditionError, match="does not use any more"):
        await driver.delete(Machine(name="m-1", machine_id="old/x"))
    burst.down = UnavailableError("away")
    with pytest.raises(UnavailableError, match="burst: away"):
        await driver.delete(Machine(name="m-1", machine_id="burst/a"))


async def test_a_list_says_what_it_is_complete_for_and_fails_only_when_no_cloud_answers() -> None:
    rack, burst = Place(), Place()
    driver = router({"rack": rack, "burst": burst})
    await driver.create(a_spec("m-1"))
    whole = await driver.list()
    assert isinstance(whole, PartialList)
    assert (whole.is_whole, whole.tells_of(""), whole.tells_of("rack/x"), whole.tells_of("old/x")) == (
        (True, True, True, False)
    )
    rack.down = UnavailableError("away")
    part = await driver.list()
    assert isinstance(part, PartialList)
    assert (part.is_whole, part.tells_of(""), part.tells_of("rack/x"), part.tells_of("burst/x")) == (
        (False, False, False, True)
    )
    burst.down = DeadlineError("no answer")
    with pytest.raises(UnavailableError, match="rack: away; burst: no answer"):
        await driver.list()


async def test_a_cloud_that_does_not_list_is_not_asked_for_machines_until_it_does() -> None:
    rack, burst = Place(), Place()
    driver = router({"rack": rack, "burst": burst})
    rack.down = UnavailableError("away")
    await driver.list()
    assert (await driver.create(a_spec("m-1"))).machine_id.startswith("burst/")
    assert rack.specs == []
    burst.refuses = OutOfStockError("none left")
    with pytest.raises(OutOfStockError, match="rack: is away: away; burst: none left"):
        await driver.create(a_spec("m-2"))
    rack.down = None
    await driver.list()
    assert (await driver.create(a_spec("m-3"))).machine_id.startswith("rack/")


async def test_a_cloud_that_hangs_holds_up_the_others_for_its_time_only_and_for_less_the_next_time() -> None:
    class Hanging(Place):
        async def list(self) -> Sequence[Machine]:
            if self.hides:
                await asyncio.get_running_loop().create_future()
            return await super().list()

    rack, burst = Hanging(), Place()
    rack.hides = UnavailableError("hangs")
    driver = router({"rack": rack, "burst": burst}, list_timeout=timedelta(milliseconds=20))
    await driver.create(a_spec())
    part = await driver.list()
    assert isinstance(part, PartialList)
    assert part.complete_for == ("burst/",)
    rack.hides = None
    assert [machine.machine_id for machine in await driver.list()] == ["rack/id-0"]
    backend = Backend("rack", Cloud(make=lambda: rack), list_timeout=timedelta(seconds=60))
    await backend.list()
    assert backend._list_seconds() == 60
    rack.down = UnavailableError("away")
    await backend.list()
    assert backend._list_seconds() == 5


async def test_a_cloud_that_is_away_at_the_start_is_started_when_it_comes_and_all_are_closed() -> None:
    rack, burst = Place(), Place()
    rack.down = UnavailableError("away")
    driver = router({"rack": rack, "burst": burst})
    await driver.start()
    with pytest.raises(UnavailableError, match="cloud rack has not told yet what it offers: away"):
        await driver.shapes()
    rack.down = None
    await driver.list()
    assert (rack.starts, burst.starts) == (1, 1)
    (shape,) = await driver.shapes()
    assert [one.name for one in shape.variants] == ["rack/small", "burst/small"]
    rack.down = UnavailableError("away")
    assert await driver.shapes() == [shape], "what it told last counts"
    await driver.close()
    assert (rack.closes, burst.closes) == (1, 1)
    burst.down = AuthenticationError("expired")
    with pytest.raises(UnavailableError, match="rack: away; burst: expired"):
        await router({"rack": rack, "burst": burst}).start()


def test_traits_are_the_weakest_of_all_and_a_create_is_never_idempotent() -> None:
    one = DriverTraits(idempotency=Idempotency.TOKEN, list_delay=timedelta(seconds=5), user_data_limit=100)
    other = DriverTraits(
        ownership=Ownership.INVENTORY, complete_list=False, user_data_limit=50, create_timeout=timedelta(seconds=30)
    )
    both = combined((one, other))
    assert both == DriverTraits(
        ownership=Ownership.NAME,
        idempotency=Idempotency.NONE,
        list_delay=timedelta(seconds=5),
        complete_list=False,
        user_data_limit=50,
        create_timeout=timedelta(seconds=150),
    )
    assert combined((one, one)).ownership is Ownership.TAGS


def test_clouds_whose_nodes_get_their_provider_ids_in_different_ways_are_refused() -> None:
    kubelet = DriverTraits(provider_id_by=ProviderIdBy.KUBELET, provider_id="a://{name}")
    with pytest.raises(PreconditionError, match="the kubelet in cloud a and by cloudgraft in cloud b"):
        check_alike({"a": kubelet, "b": DriverTraits()})
    with pytest.raises(PreconditionError, match=r"'a://{name}' in cloud a and 'not known beforehand' in cloud b"):
        check_alike({"a": kubelet, "b": DriverTraits(provider_id_by=ProviderIdBy.KUBELET)})
    check_alike({"a": kubelet, "b": kubelet})


async def test_a_shape_has_what_all_have_and_says_what_it_may_turn_out_to_be() -> None:
    rack = Place(shapes=[a_shape(memory="8Gi", labels={"kubernetes.io/arch": "arm64", "disk": "ssd"})])
    burst = Place(shapes=[a_shape(memory="7Gi", gpu="1", labels={"kubernetes.io/arch": "arm64", "disk": "hdd"})])
    (shape,) = await router({"rack": rack, "burst": burst}).shapes()
    assert (str(shape.capacity["memory"]), "gpu" in shape.capacity) == ("7Gi", False)
    assert shape.labels == {"kubernetes.io/arch": "arm64"}
    assert not shape.problem
    burst.offered = [a_shape("large")]
    (shape,) = await router({"rack": rack, "burst": burst}).shapes()
    assert shape.problem == "cloud burst has no machine type 'small'; there is: large"
