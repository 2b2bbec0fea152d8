"""The life of simulated machines: what time, orders and money do to them."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.sdk import (
    AlreadyExistsError,
    Idempotency,
    InvalidArgumentError,
    MachineState,
    NotFoundError,
    OutOfStockError,
    Quantity,
    QuotaExceededError,
    Taint,
)
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.options import MachineSettings, ShapeOptions, SimulatedOptions
from cloudgraft.simcloud.records import Order
from tests.simcloud.sim_world import START, World, an_order

BOOT = timedelta(seconds=30)
STOP = timedelta(seconds=10)


def test_a_machine_is_pending_until_it_has_booted_and_deleting_until_it_is_gone() -> None:
    world = World(boot_time=BOOT, delete_time=STOP)
    machine = world.create()
    seen = [world.states()]
    for seconds in (29, 1):
        world.clock.pass_(seconds)
        seen.append(world.states())
    world.cloud.delete(machine)
    seen.append(world.states())
    for seconds in (9, 1):
        world.clock.pass_(seconds)
        seen.append(world.states())
    assert seen == [
        {"m-1": "pending"},
        {"m-1": "pending"},
        {"m-1": "running"},
        {"m-1": "deleting"},
        {"m-1": "deleting"},
        {},
    ]


def test_a_machine_has_everything_that_its_node_needs() -> None:
    world = World(boot_time=BOOT)
    settings = MachineSettings(
        shape="gpu", zone="north-1", labels={"pool": "a"}, taints=(Taint(key="gpu", effect="NoExecute"),)
    )
    world.cloud.create(Order(name="m-1", settings=settings, tags={"cloudgraft-group": "g"}))
    world.clock.pass_(31)
    [machine] = world.cloud.machines()
    assert machine.provider_id == f"simulated://{machine.machine_id}"
    assert (machine.created_at, machine.running_since) == (START, START + 30)
    assert machine.shape.capacity == {
        "cpu": Quantity(8),
        "memory": Quantity("32Gi"),
        "pods": Quantity(110),
        "ephemeral-storage": Quantity("160Gi"),
        "nvidia.com/gpu": Quantity(1),
    }
    assert machine.labels == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu",
        "topology.kubernetes.io/zone": "north-1",
        "pool": "a",
    }
    assert machine.settings.taints == (Taint(key="gpu", effect="NoExecute"),)
    shown = machine.as_machine()
    assert (shown.state, shown.tags) == (MachineState.RUNNING, {"cloudgraft-group": "g"})
    assert shown.created_at is not None
    assert shown.created_at.timestamp() == START


def test_a_machine_costs_its_price_from_the_order_until_it_is_gone() -> None:
    world = World(delete_time=timedelta(hours=1), prices={"small": Decimal("0.10")}, currency="CHF")
    machine = world.create()
    world.clock.pass_(2 * 3600)
    assert world.cloud.ledger()[0].cost == Decimal("0.2")
    world.cloud.delete(machine)
    world.clock.pass_(5 * 3600)
    [entry] = world.cloud.ledger()
    assert (entry.cost, entry.currency, entry.state) == (Decimal("0.3"), "CHF", "gone")
    assert (entry.delete_asked_at, entry.gone_at) == (START + 2 * 3600, START + 3 * 3600)


def test_a_dead_machine_stays_and_costs_until_it_is_deleted() -> None:
    world = World(boot_time=timedelta(0), delete_time=timedelta(0), prices={"small": Decimal(1)})
    machine = world.create()
    world.cloud.kill(machine)
    world.clock.pass_(3600)
    assert world.listed() == {"m-1": "failed"}
    assert world.cloud.get(machine).reason == "the machine died"
    world.cloud.delete(machine)
    assert world.listed() == {}
    assert world.cloud.ledger()[0].cost == Decimal(1)


def test_a_machine_that_vanishes_is_gone_though_nobody_deleted_it() -> None:
    world = World()
    machine = world.create()
    world.cloud.vanish(machine)
    assert world.states() == {}
    [entry] = world.cloud.ledger()
    assert (entry.state, entry.delete_asked_at, entry.deletes) == ("gone", None, 0)


def test_lost_tags_are_lost_in_the_cloud_and_kept_in_the_ledger() -> None:
    world = World()
    machine = world.create(tags={"cloudgraft-cluster-id": "abc"}, client="abc")
    world.cloud.lose_tags(machine)
    assert world.cloud.page(10).machines[0].tags == {}
    assert world.cloud.ledger()[0].tags == {"cloudgraft-cluster-id": "abc"}
    assert world.cloud.ledger()[0].client == "abc"


def test_what_is_not_there_is_not_found() -> None:
    world = World(delete_time=timedelta(0))
    machine = world.create()
    world.cloud.delete(machine)
    for act in (world.cloud.delete, world.cloud.get, world.cloud.kill, world.cloud.vanish, world.cloud.lose_tags):
        for unknown in (machine, "nobody"):
            with pytest.raises(NotFoundError):
                act(unknown)


def test_deleting_twice_is_counted_and_changes_nothing() -> None:
    world = World(delete_time=STOP)
    machine = world.create()
    world.cloud.delete(machine, client="one")
    world.clock.pass_(5)
    world.cloud.delete(machine, client="two")
    [entry] = world.cloud.ledger()
    assert (entry.deletes, entry.deleted_by, entry.delete_asked_at) == (2, "two", START)
    world.clock.pass_(5)
    assert world.states() == {}


# -- idempotency -------------------------------------------------------------------------------------------------------


def test_the_same_token_gives_the_same_machine_and_is_counted() -> None:
    world = World(idempotency=Idempotency.TOKEN)
    assert world.create() == world.create()
    assert [entry.creates for entry in world.cloud.ledger()] == [2]


def test_a_token_gives_the_first_machine_also_when_that_is_gone_and_after_a_restart(tmp_path: Path) -> None:
    world = World(delete_time=timedelta(0), state_file=tmp_path / "l.db")
    machine = world.create()
    world.cloud.delete(machine)
    again, is_new = world.cloud.create(an_order())
    assert (again.machine_id, again.state, again.reason) == (machine, MachineState.DELETING, "the machine is gone")
    assert not is_new
    world.cloud.close()
    world.clock.pass_(24 * 3600)
    cloud = world.open()
    assert cloud.create(an_order())[0].machine_id == machine
    assert cloud.machines() == []
    cloud.close()


def test_a_token_for_another_order_is_refused() -> None:
    world = World()
    world.create("m-1", token="t")
    for name, shape in (("m-2", "small"), ("m-1", "large")):
        with pytest.raises(AlreadyExistsError):
            world.create(name, shape, token="t")


def test_an_order_without_a_token_is_always_a_new_one() -> None:
    world = World()
    assert world.create("m-1", token="") != world.create("m-1", token="")


def test_a_unique_name_is_refused_while_it_is_taken() -> None:
    world = World(idempotency=Idempotency.UNIQUE_NAME, delete_time=STOP)
    machine = world.create()
    with pytest.raises(AlreadyExistsError):
        world.create()
    world.cloud.delete(machine)
    with pytest.raises(AlreadyExistsError):
        world.create()
    world.clock.pass_(10)
    assert world.create() != machine


def test_without_idempotency_every_call_makes_a_machine() -> None:
    world = World(idempotency=Idempotency.NONE)
    assert len({world.create() for _ in range(3)}) == 3
    assert len({machine.provider_id for machine in world.cloud.machines()}) == 3


@pytest.mark.parametrize(
    ("idempotency", "made", "refused"),
    [(Idempotency.TOKEN, 1, 0), (Idempotency.UNIQUE_NAME, 1, 7), (Idempotency.NONE, 8, 0)],
)
def test_calls_at_the_same_time_are_as_if_one_after_the_other(
    idempotency: Idempotency, made: int, refused: int, tmp_path: Path
) -> None:
    cloud = SimulatedCloud(SimulatedOptions(idempotency=idempotency, state_file=tmp_path / "l.db"))
    errors: list[Exception] = []
    together = threading.Barrier(8)

    def create() -> None:
        together.wait()
        try:
            cloud.create(an_order())
        except AlreadyExistsError as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(cloud.ledger()), len(errors)) == (made, refused)
    cloud.close()


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_quota_counts_what_is_there() -> None:
    world = World(quota=1, delete_time=STOP)
    machine = world.create("m-1")
    with pytest.raises(QuotaExceededError, match="may have 1 machines"):
        world.create("m-2")
    world.cloud.delete(machine)
    with pytest.raises(QuotaExceededError):
        world.create("m-2")
    world.clock.pass_(10)
    world.create("m-2")


def test_stock_is_per_shape() -> None:
    world = World(stock={"gpu": 1})
    world.create("m-1", "gpu")
    with pytest.raises(OutOfStockError, match="gpu"):
        world.create("m-2", "gpu")
    world.create("m-2", "small")


def test_a_token_that_is_known_is_answered_though_the_quota_is_full() -> None:
    world = World(quota=1)
    assert world.create() == world.create()


def test_an_unknown_shape_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgumentError, match="there is: small, medium, large, gpu"):
        World().create("m-1", "smal")


# -- shapes and prices -------------------------------------------------------------------------------------------------


def test_the_default_shapes_have_prices_in_one_currency() -> None:
    cloud = World().cloud
    sizes = {shape.name: (str(shape.capacity["cpu"]), str(shape.capacity["memory"])) for shape in cloud.shapes()}
    assert sizes == {"small": ("2", "4Gi"), "medium": ("4", "16Gi"), "large": ("8", "32Gi"), "gpu": ("8", "32Gi")}
    assert {price.shape for price in cloud.prices()} == set(sizes)
    assert {price.currency for price in cloud.prices()} == {"EUR"}


def test_own_shapes_and_prices_stand_beside_and_above_the_default_ones() -> None:
    own = ShapeOptions(cpu="500m", memory="1Gi", labels={"tier": "tiny"}, hourly=Decimal("0.001"))
    cloud = World(shapes={"tiny": own}, prices={"small": Decimal(7)}).cloud
    prices = {price.shape: price.hourly for price in cloud.prices()}
    assert (prices["tiny"], prices["small"]) == (Decimal("0.001"), Decimal(7))
    tiny = next(shape for shape in cloud.shapes() if shape.name == "tiny")
    assert tiny.capacity["cpu"] == Quantity("500m")
    assert (tiny.labels["tier"], tiny.labels["node.kubernetes.io/instance-type"]) == ("tiny", "tiny")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prices": {"smal": Decimal(1)}}, "prices.smal: there is no such shape"),
        ({"stock": {"smal": 1}}, "stock.smal: there is no such shape"),
        ({"stock": {"small": -1}}, "negative"),
        ({"prices": {"small": Decimal("NaN")}}, "price"),
        ({"boot_time": timedelta(-1)}, "bootTime"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"page_size": 0}, "pageSize"),
        ({"url": "ftp://x"}, "http://127"),
        ({"url": "http://me:pass@x:1"}, "credentials"),
        ({"url": "http://[::1"}, "url"),
        ({"url": "http://x:99999"}, "url"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        World(**options)


def test_shapes_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"cpu: 'many' is not a quantity.*memory: must not.*hourly: must be"):
        ShapeOptions(cpu="many", memory=-1, hourly=Decimal(-1))


def test_the_revision_grows_when_and_only_when_there_is_news() -> None:
    world = World(boot_time=BOOT, delete_time=STOP)
    seen = [world.cloud.revision]
    machine = world.create()
    seen.append(world.cloud.revision)
    world.clock.pass_(29)
    assert world.cloud.revision == seen[-1]
    world.clock.pass_(1)  # it runs
    seen.append(world.cloud.revision)
    world.cloud.delete(machine)
    seen.append(world.cloud.revision)
    assert world.cloud.machines()
    assert world.cloud.revision == seen[-1]
    world.clock.pass_(10)  # it is gone
    seen.append(world.cloud.revision)
    assert seen == sorted(set(seen))


def test_what_has_been_gone_for_long_is_forgotten_but_for_the_ledger() -> None:
    world = World(delete_time=timedelta(0))
    for number in range(3):
        world.cloud.delete(world.create(f"m-{number}"))
    keeper = world.create("keeper")
    world.clock.pass_(2 * 3600)
    assert world.listed() == {"keeper": "running"}
    assert world.cloud.get(keeper).name == "keeper"
    assert len(world.cloud._inventory._records) == 1
    assert [entry.name for entry in world.cloud.ledger()] == ["m-0", "m-1", "m-2", "keeper"]
