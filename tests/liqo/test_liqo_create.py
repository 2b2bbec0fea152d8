"""Making machines of remote clusters: which one, what is left behind, and what is told when nobody can."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from cloudgraft.discovery.model import ClusterState
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    DeadlineError,
    ErrorClass,
    InvalidArgumentError,
    OutOfStockError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.liqo.liqo_world import QUICK, World, spec

# Only for what is to run out. It is long enough for all else, which goes on beside it on a busy machine.
IMPATIENT = replace(QUICK, slice=timedelta(seconds=5))


async def test_a_machine_becomes_a_virtual_node_with_a_provider_id(world: World) -> None:
    async with world.started() as driver:
        machine = await driver.create(spec())
        assert (machine.name, machine.provider_id, machine.state) == ("node-1", "liqo://node-1", MachineState.RUNNING)
        await world.has_node("node-1")
        assert [one.machine_id for one in await driver.list()] == [machine.machine_id]
        assert (await driver.list())[0].tags == spec().tags
    assert world.slices() == ["cluster-a/node-1"]
    assert world.reserved() == ["cluster-a:consumer/node-1:confirmed"]


@pytest.mark.thorough
async def test_the_provider_id_is_there_before_the_node_is_ready(world: World) -> None:
    """R30: the autoscaler takes a node that is ready and has none for a stranger."""
    world.script.say(never_ready=True)
    async with world.started() as driver:
        await driver.create(spec())
        await world.has_node("node-1")


@pytest.mark.thorough
async def test_several_machines_come_of_one_cluster(world: World) -> None:
    async with world.started() as driver:
        await asyncio.gather(*(driver.create(spec(f"node-{number}")) for number in range(4)))
    assert world.slices() == [f"cluster-a/node-{number}" for number in range(4)]
    assert len(world.objects("tenants", at="cluster-a")) == 1


async def test_cost_decides_and_changes_its_mind(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec("node-1"))
        world.market.entries["cluster-b"].price = Decimal("0.5")
        await driver.create(spec("node-2"))
    assert world.slices() == ["cluster-a/node-1", "cluster-b/node-2"]


@pytest.mark.thorough
async def test_the_same_name_again_is_the_same_machine(world: World) -> None:
    async with world.started() as driver:
        first, second = await driver.create(spec()), await driver.create(spec())
    assert first.machine_id == second.machine_id
    assert len(world.slices()) == len(world.market.reserved) == 1


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"deny": "Full", "deny_message": "no room"}, "denied the slice (Resources): Full no room"),
        ({"deny_authentication": True}, "denied the slice (Authentication)"),
        ({"grant": {"cpu": "1500m"}}, "granted less than the shape: cpu 1500m of 2"),
    ],
)
@pytest.mark.thorough
async def test_a_cluster_that_refuses_is_followed_by_the_next(world: World, rules: dict[str, Any], why: str) -> None:
    world.script.say(cluster="cluster-a", **rules)
    async with world.started() as driver:
        await driver.create(spec())
        assert world.slices() == ["cluster-b/node-1"]
        assert world.reserved() == ["cluster-b:consumer/node-1:confirmed"]
        world.script.say(cluster="cluster-b", **rules)
        with pytest.raises(OutOfStockError) as told:
            await driver.create(spec("node-2"))
    assert told.value.error_class is ErrorClass.OUT_OF_RESOURCES
    assert why in told.value.message, told.value.message
    assert "cluster-a: failed lately" in told.value.message, "the first is cooling down, and was not asked again"
    assert world.slices() == ["cluster-b/node-1"]
    assert len(world.market.reserved) == 1


@pytest.mark.thorough
async def test_a_dead_cluster_is_given_up_and_the_next_serves(world: World) -> None:
    world.providers["cluster-a"].stop()
    async with world.started() as driver:
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]
    assert world.reserved() == ["cluster-b:consumer/node-1:confirmed"]


@pytest.mark.thorough
async def test_the_next_cluster_is_asked_only_when_nothing_of_that_name_is_left(world: World) -> None:
    """Liqo makes a virtual node of whatever was granted; of two of one name it would take the wrong one away."""
    world.script.say(cluster="cluster-a", grant={"cpu": "1"}, delays={"delete": 0.3})
    world.script.say(cluster="cluster-b", delays={"virtualNode": 3600})
    async with world.started() as driver:
        await driver.create(spec())
        assert world.slices() == ["cluster-b/node-1"]
        assert world.names("virtualnodes") == []


@pytest.mark.thorough
async def test_a_cluster_that_does_not_let_go_is_left_alone_for_a_while(world: World) -> None:
    """What was asked of it stays until Liqo reaches it again; the next machine is made elsewhere."""
    async with world.started(timeouts=replace(IMPATIENT, removal=timedelta(seconds=3))) as driver:
        world.script.say(cluster="cluster-a", delays={"resources": 3600})
        trying = asyncio.create_task(driver.create(spec()))
        await until(lambda: bool(world.objects("resourceslices", at="cluster-a")), what="cluster-a is asked")
        world.script.say(cluster="cluster-a", dead=True)
        with pytest.raises(DeadlineError):
            await trying
        await driver.create(spec("node-2"))
    assert world.slices() == ["cluster-a/node-1", "cluster-b/node-2"]


@pytest.mark.thorough
async def test_a_cluster_that_never_answers_is_given_up(world: World) -> None:
    async with world.started(timeouts=IMPATIENT) as driver:
        world.script.say(cluster="cluster-a", delays={"resources": 3600})
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]


@pytest.mark.thorough
async def test_a_cluster_that_failed_is_asked_again_when_it_has_cooled_down(world: World) -> None:
    world.script.say(cluster="cluster-a", deny="Full")
    async with world.started(cool_down=timedelta(seconds=0)) as driver:
        await driver.create(spec())
        world.script.say(cluster="cluster-a", deny="")
        await driver.create(spec("node-2"))
    assert world.slices() == ["cluster-a/node-2", "cluster-b/node-1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("}garbage{: [", "is not valid YAML"),
        ("apiVersion: v1\nkind: Config\n", "has no 'clusters'"),
        ("OTHER", "leads to cluster 'cluster-b' instead"),
        ("EXEC", "it has exec, which would reach into this computer"),
    ],
)
@pytest.mark.thorough
async def test_a_kubeconfig_that_is_no_use_fails_its_own_cluster_only(world: World, text: str, why: str) -> None:
    good = world.market.entries["cluster-b"].kubeconfig
    program = '"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}'
    bad = {"OTHER": good, "EXEC": good.replace('"token": "not-a-secret"', program)}
    world.market.entries["cluster-a"].kubeconfig = bad.get(text, text)
    async with world.started() as driver:
        with pytest.raises(OutOfStockError) as told:
            await driver.create(spec(shape="S@cluster-a"))
        assert why in told.value.message, told.value.message
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]


@pytest.mark.thorough
async def test_a_shape_of_one_cluster_is_made_there_or_not_at_all(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec(shape="M@cluster-b"))
        world.market.entries["cluster-b"].state = ClusterState.STALE
        with pytest.raises(OutOfStockError, match="cluster-b: it is Stale"):
            await driver.create(spec("node-2", shape="M@cluster-b"))
        with pytest.raises(OutOfStockError, match="no remote cluster"):
            await driver.create(spec("node-3", shape="S@nowhere"))
    assert world.slices() == ["cluster-b/node-1"]


@pytest.mark.thorough
async def test_everything_that_a_cluster_shares_is_one_machine(world: World) -> None:
    async with world.started() as driver:
        shapes = {shape.name: shape for shape in await driver.shapes()}
        await driver.create(spec(shape="all@cluster-a"))
        asked = world.objects("resourceslices")[0]["spec"]["resources"]
        assert {name: Quantity(amount) for name, amount in asked.items()} == shapes["all@cluster-a"].capacity
        with pytest.raises(OutOfStockError, match="cluster-a: not enough is free"):
            await driver.create(spec("node-2", shape="all@cluster-a"))


@pytest.mark.thorough
async def test_a_group_narrows_what_its_cloud_allows(world: World) -> None:
    async with world.started(exclude=["cluster-b"]) as driver:
        with pytest.raises(OutOfStockError, match="cluster-a: it is too dear"):
            await driver.create(spec(priceCap="0.5"))
        with pytest.raises(OutOfStockError, match="cluster-a: it is excluded"):
            await driver.create(spec(exclude=["cluster-a"]))
        await driver.create(spec(resourceSliceClass="special"))
    assert world.objects("resourceslices")[0]["spec"]["class"] == "special"


@pytest.mark.parametrize(
    "settings", [{"shape": "XL"}, {"shape": "all"}, {"shape": ""}, {"strategy": "dearest"}, {"colour": "red"}]
)
@pytest.mark.thorough
async def test_settings_that_make_no_sense_are_refused(world: World, settings: dict[str, object]) -> None:
    async with world.started() as driver:
        with pytest.raises(InvalidArgumentError):
            await driver.create(spec(**{"shape": "S", **settings}))  # type: ignore[arg-type]  # nonsense on purpose
    assert not world.market.reserved


@pytest.mark.thorough
async def test_without_discovery_nothing_new_is_made_and_all_else_goes_on(world: World) -> None:
    async with world.started() as driver:
        machine = await driver.create(spec())
        shapes, prices = await driver.shapes(), await driver.prices()
        world.market.is_away = True
        with pytest.raises(UnavailableError, match="no remote cluster can be chosen: discovery cannot be reached"):
            await driver.create(spec("node-2"))
        assert (await driver.create(spec())).machine_id == machine.machine_id, "it is there, and needs no choice"
        assert (await driver.shapes(), await driver.prices()) == (shapes, prices)
        await driver.delete(machine)
        await until(lambda: not world.slices())
        world.market.is_away = False
        await until(
            lambda: not world.market.reserved, what="the maintenance gives it back when discovery is there again"
        )


@pytest.mark.thorough
async def test_somebody_elses_slice_of_that_name_is_left_alone(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec())
        strange = replace(spec(), tags={"cloudgraft-cluster-id": "other"})
        with pytest.raises(AlreadyExistsError):
            await driver.create(strange)
    assert world.slices() == ["cluster-a/node-1"]


@pytest.mark.thorough
async def test_while_the_consumers_api_is_away_no_cluster_is_blamed(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec())
        world.consumer.stop()
        with pytest.raises(UnavailableError):
            await driver.create(spec("node-2"))
        with pytest.raises(UnavailableError):
            await driver.list()
        world.consumer.start()
        await driver.create(spec("node-2"))
    assert world.slices() == ["cluster-a/node-1", "cluster-a/node-2"]


@pytest.mark.thorough
async def test_of_a_cluster_that_is_full_the_price_stays_and_of_one_that_is_away_it_goes(world: World) -> None:
    """The autoscaler would go on to choose what nobody can give."""

    async def told(driver: LiqoDriver) -> dict[str, Decimal]:
        await driver.shapes()
        return {price.shape: price.hourly for price in await driver.prices()}

    async with world.started() as driver:
        before = await told(driver)
        assert {before["S@cluster-a"], before["all@cluster-a"], before["S"]} == {Decimal(1)}
        await driver.create(spec(shape="all@cluster-a"))
        assert await told(driver) == {**before, "S": Decimal(2), "M": Decimal(2)}
        world.market.entries["cluster-a"].state = ClusterState.STALE
        assert {name for name in await told(driver) if name.endswith("@cluster-a")} == set()
        world.market.entries["cluster-a"].state = ClusterState.READY
        assert (await told(driver))["S@cluster-a"] == Decimal(1), "it is full still"
        world.market.reserved.clear()
        world.market.entries["cluster-a"].price = None
        assert "S@cluster-a" not in await told(driver), "its price has ended"


@pytest.mark.thorough
async def test_everything_of_a_cluster_is_what_others_have_left_of_it(world: World) -> None:
    await world.market.reserve("cluster-a", {"cpu": Quantity(6)}, owner="other/m", seconds=60)
    async with world.started() as driver:
        shapes = {shape.name: shape for shape in await driver.shapes()}
        assert shapes["all@cluster-a"].capacity["cpu"] == Quantity(10)
        await driver.create(spec(shape="all@cluster-a"))
    assert world.slices() == ["cluster-a/node-1"]
