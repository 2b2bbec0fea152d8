"""Bugs of the proof of concept that this driver must not have. Each test would fail with the original.

Bugs 4 and 5 also in test_liqo_placement.py; 1, 7 and 10 are the node manager's, 8 discovery's, 9 of both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.discovery.model import Network, NetworkMode
from cloudgraft.engine.groups.desired import Catalog, complete
from cloudgraft.sdk.errors import DeadlineError, ErrorClass, OutOfStockError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState
from tests.conditions import until
from tests.engine.scripted_cloud import desired_state, group, stepped
from tests.kube_api import User
from tests.liqo.liqo_world import SIZES, World, pretty, spec

GPU = "nvidia.com/gpu"


def _node(world: World, name: str) -> dict[str, Any]:
    found = world.node(name)
    assert found is not None
    return found


def _is_ready(world: World, name: str) -> bool:
    found = world.node(name)
    conditions = (found or {}).get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


# -- 2: no eligible cluster --------------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_bug_2_no_cluster_that_fits_is_told_as_out_of_resources_and_the_next_create_may_do_better(
    world: World,
) -> None:
    """The original went on with an empty cluster, and died of it."""
    async with world.started() as driver:
        with pytest.raises(OutOfStockError) as told:
            await driver.create(spec(exclude=["cluster-a", "cluster-b"]))
        assert told.value.error_class is ErrorClass.OUT_OF_RESOURCES
        assert "no remote cluster can give S" in told.value.message
        entries, world.market.entries = world.market.entries, {}
        with pytest.raises(OutOfStockError, match="knows none"):
            await driver.create(spec())
        assert world.slices() == world.reserved() == []
        world.market.entries = entries
        await driver.create(spec())
    assert world.slices() == ["cluster-a/node-1"]


async def test_bug_2_the_autoscaler_sees_it_at_the_machine_and_other_groups_go_on(world: World, tmp_path: Path) -> None:
    """Law 7: class 1, so that it tries another group at once."""
    nowhere = group("nowhere", machine={"shape": "S", "exclude": ["cluster-a", "cluster-b"]})
    plan = desired_state({"a": world.driver()}, nowhere, group("remote", machine={"shape": "S"}))
    async with stepped(tmp_path, plan) as case:
        for id_ in ("nowhere", "remote"):
            await case.provider.increase_size(id_, 1)
        await case.turns(3)
        (failed,) = await case.provider.instances("nowhere")
        assert failed.state is InstanceState.CREATING
        assert failed.error is not None
        assert failed.error.error_class == ErrorClass.OUT_OF_RESOURCES
        assert await case.states("remote") == ["RUNNING"]
        assert len(world.slices()) == 1


# -- 3: a node that never gets ready, a patch that fails ---------------------------------------------------------------


async def test_bug_3_a_node_that_is_never_ready_is_the_trouble_of_its_machine_and_is_released(world: World) -> None:
    """The original ended its process, and with it all that it knew."""
    world.script.say(slice_name="node-1", never_ready=True)
    async with world.started() as driver:
        first, _ = await driver.create(spec()), await driver.create(spec("node-2"))
        await until(lambda: _is_ready(world, "node-2"), what="the other node is ready")
        assert not _is_ready(world, "node-1")
        await driver.delete(first)
        await until(lambda: world.node("node-1") is None, what="the node is gone")
        await until(lambda: world.reserved() == ["cluster-a:consumer/node-2:confirmed"], what="it is given back")
        assert [machine.name for machine in await driver.list()] == ["node-2"]
        await driver.create(spec("node-3"))
    assert world.slices() == ["cluster-a/node-2", "cluster-a/node-3"]


@pytest.mark.thorough
async def test_bug_3_a_patch_that_fails_is_made_again_and_holds_up_no_other_node(world: World) -> None:
    driver_user = world.consumer.users.add(User("driver"))
    config = world.consumer.kubeconfig(world.directory, user=driver_user, name="driver.kubeconfig")
    world.consumer.refuse(lambda r: (r.user, r.verb, r.name) == ("driver", "patch", "node-1"), 500, times=10_000)
    async with world.started(kubeconfig=config) as driver:
        first, _ = await driver.create(spec()), await driver.create(spec("node-2"))
        await world.has_node("node-2")
        assert not _node(world, "node-1")["spec"].get("providerID")
        world.consumer.faults.clear()
        await world.has_node("node-1")
        await driver.delete(first)
        await until(lambda: len(world.market.reserved) == 1, what="it is given back")


@pytest.mark.thorough
async def test_bug_3_what_fails_on_the_way_leaves_nothing_behind_and_the_cluster_can_be_used_again(
    world: World,
) -> None:
    """The original never freed a cluster that had failed once."""
    async with world.started() as driver:
        world.consumer.refuse(lambda r: (r.verb, r.plural) == ("create", "resourceslices"), 503, times=10_000)
        with pytest.raises(DeadlineError):  # a 503 may come after the API server has made it
            await driver.create(spec())
        assert world.slices() == []
        world.consumer.faults.clear()
        await driver.create(spec())
        assert world.slices() == ["cluster-a/node-1"]
        assert world.reserved() == ["cluster-a:consumer/node-1:confirmed"]


# -- 4 and 5: what the autoscaler is promised --------------------------------------------------------------------------


async def test_bugs_4_and_5_the_real_node_has_all_that_the_template_promises(world: World) -> None:
    """Amounts, devices under their right names, labels, and the taint that keeps other pods away."""
    entry = world.market.entries["cluster-a"]
    entry.spec = replace(entry.spec, capacity={**entry.spec.capacity, GPU: Quantity(4)})
    sizes = {**SIZES, "G": {"cpu": "3500m", "memory": "4Gi", "pods": 10, GPU: 1}}
    async with world.started(sizes=sizes) as driver:
        shapes = {shape.name: shape for shape in await driver.shapes()}
        await driver.create(spec(shape="G@cluster-a"))
        await until(lambda: _is_ready(world, "node-1"), what="the node is ready")
    asked = world.objects("resourceslices")[0]["spec"]["resources"]
    assert {name: Quantity(amount) for name, amount in asked.items()} == dict(shapes["G@cluster-a"].capacity)
    declared = replace(group(machine={"shape": "G@cluster-a"}), template=type(group().template)())
    template = complete(declared, Catalog(shapes=shapes), needs_price=False).template
    node = _node(world, "node-1")
    allocatable = {name: Quantity(amount) for name, amount in node["status"]["allocatable"].items()}
    for name, amount in template.allocatable.items():
        assert allocatable[name] >= amount, pretty(node["status"])
    assert node["metadata"]["labels"].items() >= template.labels.items(), pretty(node["metadata"]["labels"])
    taints = {(taint["key"], taint.get("value", ""), taint["effect"]) for taint in node["spec"]["taints"]}
    assert {(taint.key, taint.value, taint.effect) for taint in template.taints} <= taints


# -- 6: a provider behind NAT ------------------------------------------------------------------------------------------


async def test_bug_6_behind_nat_the_provider_calls_and_the_consumer_waits(world: World) -> None:
    """The original gave `liqoctl peer` a flag that it does not have."""
    entry = world.market.entries["cluster-a"]
    entry.spec = replace(entry.spec, network=Network(mode=NetworkMode.CONSUMER_GATEWAY))
    async with world.started() as driver:
        await driver.create(spec())
    (server,), (client,) = world.objects("gatewayservers"), world.objects("gatewayclients", at="cluster-a")
    assert not world.objects("gatewayservers", at="cluster-a")
    assert not world.objects("gatewayclients")
    told = server["status"]["endpoint"]
    assert client["spec"]["endpoint"]["addresses"] == told["addresses"]
    assert client["spec"]["endpoint"]["port"] == told["port"]
    assert world.slices() == ["cluster-a/node-1"]
