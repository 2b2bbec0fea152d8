"""A cloud of the engine that is a driver which has dialled in, over the real hub: here, and at a dock elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.hub.metrics import DockMetrics
from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.runner import MachineError, Speech
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership, Shape
from cloudgraft.sdk.errors import (
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver, Slow, dock_options
from tests.engine.scripted_cloud import Cloud

TRAITS = DriverTraits(ownership=Ownership.INVENTORY, idempotency=Idempotency.UNIQUE_NAME)
SPEC = MachineSpec(name="m-1", group="g", settings={"size": 3}, tags={"a": "b"}, user_data="#cloud-config")


@pytest.fixture
async def connected() -> AsyncIterator[ConnectedDriver]:
    async with ConnectedDriver() as made:
        yield made


@pytest.fixture(params=["here", "elsewhere"])
async def cloud(request: pytest.FixtureRequest, connected: ConnectedDriver) -> AsyncIterator[DockDriver]:
    made = connected.cloud() if request.param == "here" else connected.remote_cloud()
    await made.start()
    yield made
    await made.close()


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_machines_are_made_listed_and_deleted_through_the_dock(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    behind = Slow(TRAITS)
    behind.may_answer.set()
    await connected.dial_in(behind)
    machine = await cloud.create(SPEC)
    assert machine == behind.machines[machine.machine_id]
    whole = {"shape": "small", **SPEC.settings}  # the group's settings over what the class says
    assert behind.specs == [replace(SPEC, settings=whole)]
    assert list(await cloud.list()) == [machine]
    assert cloud.traits == TRAITS
    await cloud.delete(machine)
    assert (list(await cloud.list()), behind.deleted) == ([], [machine.machine_id])


async def test_a_driver_that_is_away_is_an_error_at_once_and_nothing_was_done(cloud: DockDriver) -> None:
    """Law 6; and nothing is taken for gone that was never seen."""
    machine = Machine(name="m-1", machine_id="1")
    with pytest.raises(UnavailableError, match="AcmeMachineClass"):
        await cloud.list()
    with pytest.raises(UnavailableError):
        await cloud.create(SPEC)
    with pytest.raises(UnavailableError):
        await cloud.delete(machine)
    assert not cloud.traits.complete_list


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (MachineError(Code.RESOURCE_EXHAUSTED, "none left"), OutOfStockError),
        (MachineError(Code.INVALID_ARGUMENT, "no such size"), InvalidArgumentError),
        (MachineError(Code.UNAVAILABLE, "lost"), DeadlineError),
        (MachineError(Code.UNAVAILABLE, "closed", retry_after=9), UnavailableError),
        (ValueError("a bug"), InternalError),
    ],
    ids=["stock", "argument", "unavailable", "told when", "bug"],
)
async def test_errors_come_by_their_codes(
    connected: ConnectedDriver, cloud: DockDriver, raised: Exception, seen: type[Exception]
) -> None:
    behind = Slow()
    behind.error = raised
    await connected.dial_in(behind)
    with pytest.raises(seen) as caught:
        await cloud.create(SPEC)
    assert type(caught.value) is seen
    assert "a bug" not in str(caught.value)


async def test_a_connection_that_ends_in_mid_create_leaves_the_outcome_open(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    """Law 3: neither success nor "nothing was done"."""
    behind = Slow()
    runner = await connected.dial_in(behind)
    creating = asyncio.create_task(cloud.create(SPEC))
    await until(lambda: bool(behind.machines), what="the driver has begun")
    await runner.stop(0)
    with pytest.raises(DeadlineError):
        await creating


async def test_a_dock_that_goes_away_in_mid_create_leaves_the_outcome_open(connected: ConnectedDriver) -> None:
    behind = Slow()
    await connected.dial_in(behind)
    cloud = connected.remote_cloud()
    await cloud.start()
    creating = asyncio.create_task(cloud.create(SPEC))
    await until(lambda: bool(behind.machines), what="the driver has begun")
    await connected.listener.close(0)
    with pytest.raises(DeadlineError):
        await creating
    with pytest.raises(UnavailableError):
        await cloud.list()
    await cloud.close()


async def test_what_the_machine_class_says_is_the_shape_of_a_driver_that_knows_none(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    await connected.dial_in(Cloud())
    (shape,) = await cloud.shapes()
    assert (shape.name, shape.capacity["memory"]) == ("m1", Quantity("4Gi"))
    with pytest.raises(UnsupportedError):
        await cloud.prices()
    connected.classes.is_there = False
    with pytest.raises(UnsupportedError):
        await cloud.shapes()


async def test_a_driver_that_knows_its_shapes_is_believed(connected: ConnectedDriver, cloud: DockDriver) -> None:
    class Knowing(Cloud):
        async def shapes(self) -> Sequence[Shape]:
            return [huge]

    huge = Shape(name="huge", capacity={"cpu": Quantity("64")}, taints=(Taint(key="huge", effect="NoExecute"),))
    await connected.dial_in(Knowing(DriverTraits(catalog_lasts=timedelta(seconds=30))))
    assert list(await cloud.shapes()) == [huge]
    assert cloud.traits.catalog_lasts == timedelta(seconds=30)


async def test_a_create_has_as_long_as_the_driver_declares(connected: ConnectedDriver, cloud: DockDriver) -> None:
    behind = Slow(DriverTraits(create_timeout=timedelta(milliseconds=60)))
    await connected.dial_in(behind)
    async with asyncio.timeout(60):  # less than the 110 s that others have
        with pytest.raises(DeadlineError):
            await cloud.create(SPEC)
    behind.may_answer.set()


async def test_a_class_that_is_gone_makes_no_machines_and_still_has_them_listed_and_deleted(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    behind = Slow()
    behind.may_answer.set()
    await connected.dial_in(behind)
    machine = await cloud.create(SPEC)
    connected.classes.is_there = False
    with pytest.raises(NotFoundError):
        await cloud.create(SPEC)
    assert list(await cloud.list()) == [machine]
    await cloud.delete(machine)
    assert behind.machines == {}


# -- traits ------------------------------------------------------------------------------------------------------------


async def test_a_driver_of_2018_has_the_traits_that_the_file_says(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    await connected.dial_in(Cloud(TRAITS), speech=Speech.V0)
    await cloud.list()
    assert (cloud.traits.ownership, cloud.traits.idempotency) == (Ownership.NAME, Idempotency.NONE)
    assert cloud.traits.complete_list


async def test_a_driver_of_2018_is_not_asked_for_a_machine_that_would_never_join(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    """Its protocol has no room for user data: that is told, instead of a machine that is made in vain."""
    behind = Cloud()
    await connected.dial_in(behind, speech=Speech.V0)
    with pytest.raises(PreconditionError, match="user data"):
        await cloud.create(SPEC)
    assert behind.machines == {}
    assert (await cloud.create(replace(SPEC, user_data=""))).provider_id == "cloud://m-1"


async def test_another_driver_in_the_same_place_brings_its_own_traits(
    connected: ConnectedDriver, cloud: DockDriver
) -> None:
    first = await connected.dial_in(Cloud(TRAITS))
    await cloud.list()
    await first.stop(0)
    await until(lambda: connected.hub.info(KEY) is None, what="the first is gone")
    assert cloud.traits == TRAITS, "what was known stays while nobody is there"
    await connected.dial_in(Cloud(DriverTraits(list_delay=timedelta(minutes=1))))
    await cloud.list()
    assert cloud.traits.list_delay == timedelta(minutes=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": ""},
        {"machine_class": "a\nb"},
        {"cert_file": Path("x"), "address": "h:1"},
        {"token_file": Path("x")},
        {"create_timeout": timedelta(0)},
        {"list_delay": timedelta(-1)},
        {"providerID": "no-name"},
        {"max_in_flight": 0},
        {"error_texts": {"no room": "no_such_error"}},
        {"error_texts": {" * ": "quota_exceeded"}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_options_that_can_never_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        dock_options(**wrong)


def test_a_dock_on_another_host_is_not_talked_to_without_tls() -> None:
    """Law 9."""
    with pytest.raises(InvalidArgumentError, match="without TLS"):
        DockDriver(dock_options(address="dock.example:5000"))


async def test_without_a_dock_it_says_what_to_do() -> None:
    cloud = DockDriver(dock_options())
    await cloud.start()
    with pytest.raises(UnavailableError, match="dock"):
        await cloud.list()
    await cloud.close()


# -- metrics -----------------------------------------------------------------------------------------------------------


async def test_the_metrics_show_who_is_connected_and_what_was_done(connected: ConnectedDriver) -> None:
    registry = CollectorRegistry()
    DockMetrics(connected.hub, registry)
    labels = f'api_version="{KEY.api_version}",kind="{KEY.kind}"'
    cloud = connected.cloud()
    assert "cloudgraft_dock_driver_up{" not in generate_latest(registry).decode()
    await cloud.start()
    page = generate_latest(registry).decode()
    assert 'cloudgraft_dock_drivers{protocol="v1"} 0.0' in page
    assert f"cloudgraft_dock_driver_up{{{labels}}} 0.0" in page
    await connected.dial_in(Cloud())
    await cloud.list()
    page = generate_latest(registry).decode()
    assert f"cloudgraft_dock_driver_up{{{labels}}} 1.0" in page
    assert 'cloudgraft_dock_drivers{protocol="v1"} 1.0' in page
    assert f'cloudgraft_dock_operations_total{{{labels},result="ok"}} 1.0' in page
    assert f"cloudgraft_dock_in_flight{{{labels}}} 0.0" in page
    assert 'cloudgraft_dock_events_total{what="connected"} 1.0' in page
    assert 'cloudgraft_dock_events_total{what="refused"} 0.0' in page
    await cloud.close()
    assert "cloudgraft_dock_driver_up{" not in generate_latest(registry).decode()
