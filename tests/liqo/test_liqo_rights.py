"""What the driver does in both clusters is what the table of rights says, from which pages and manifests follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.discovery.model import Network, NetworkMode
from cloudgraft.kube.rights import Right
from tests.conditions import until
from tests.kube.needed_rights import PART_RIGHTS, TENANT, Part
from tests.kube_api import KubeApi, User
from tests.liqo.liqo_world import World, spec

# What is out of date is patched. To bind a role is a right that the API server looks for by itself. Each
# half of a gateway is made at one side only. A namespace of another name is looked for where the usual one is missing.
RARE = {
    ("patch", "foreignclusters"),
    ("patch", "secrets"),
    ("bind", "clusterroles"),
    ("list", "namespaces"),
    *((verb, kind) for verb in ("create", "delete") for kind in ("gatewayservers", "gatewayclients")),
}


def _used(api: KubeApi, user: User) -> set[Right]:
    return {
        Right(
            verb=request.verb,
            resource=request.plural,
            group=request.group,
            namespace=TENANT if request.namespace.startswith("liqo-tenant-") else request.namespace,
        )
        for request in api.requests
        if request.user == user.name
    }


def _given(part: Part) -> set[Right]:
    """Who may do it in the whole cluster may do it in each namespace."""
    rights = set(PART_RIGHTS[part])
    return rights | {replace(right, namespace=TENANT) for right in rights if not right.namespace}


async def _live(world: World, mode: NetworkMode) -> tuple[set[Right], set[Right]]:
    """From the first machine to the end of the peering; what was done at both sides."""
    entry, provider = world.market.entries["cluster-a"], world.providers["cluster-a"]
    entry.spec = replace(entry.spec, network=Network(mode=mode))
    here, there = world.consumer.users.add(User("driver")), provider.users.add(User("driver"))
    entry.kubeconfig = provider.kubeconfig_text(there)
    config = world.consumer.kubeconfig(world.directory, user=here, name="driver.kubeconfig")
    at_once = {"unpeer_after": timedelta(0), "look_every": timedelta(seconds=0.1)}
    async with world.started(kubeconfig=config, **at_once) as driver:
        machine = await driver.create(spec())
        await world.has_node("node-1")
        labelled = Right(verb="patch", resource="virtualnodes", group="offloading.liqo.io", namespace=TENANT)
        await until(lambda: labelled in _used(world.consumer, here), what="the node has its label")
        await driver.delete(machine)
        await until(lambda: "liqo-tenant-cluster-a" not in world.names("namespaces"), what="the end of the peering")
    return _used(world.consumer, here), _used(provider, there)


@pytest.mark.parametrize(
    "mode", [NetworkMode.DIRECT, pytest.param(NetworkMode.CONSUMER_GATEWAY, marks=pytest.mark.thorough)]
)
@pytest.mark.thorough
async def test_no_more_is_done_than_the_rights_allow_and_hardly_less(world: World, mode: NetworkMode) -> None:
    here, there = await _live(world, mode)
    assert here <= _given(Part.CONSUMER)
    assert there <= _given(Part.PROVIDER)
    unused = {*PART_RIGHTS[Part.CONSUMER]} - here | {*PART_RIGHTS[Part.PROVIDER]} - there
    assert {(right.verb, right.resource) for right in unused} <= RARE


@pytest.mark.thorough
async def test_a_provider_that_made_the_namespace_itself_need_not_let_others_make_any(world: World) -> None:
    """As deploy/liqo/provider.yaml does it."""
    labels = {"liqo.io/remote-cluster-id": "consumer", "liqo.io/tenant-namespace": "true"}
    manifest = {"metadata": {"name": "liqo-tenant-consumer", "labels": labels}}
    provider = world.providers["cluster-a"]
    provider.store.create("namespaces", "", manifest)
    narrow = User("driver", denied={(verb, "namespaces") for verb in ("list", "create", "delete")})
    world.market.entries["cluster-a"].kubeconfig = provider.kubeconfig_text(provider.users.add(narrow))
    async with world.started(unpeer_after=timedelta(0), look_every=timedelta(seconds=0.1)) as driver:
        machine = await driver.create(spec())
        assert world.slices() == ["cluster-a/node-1"]
        await driver.delete(machine)
        await until(lambda: not world.objects("tenants", at="cluster-a"), what="the end of the peering there")
        await until(lambda: "liqo-tenant-cluster-a" not in world.names("namespaces"), what="the end of the peering")
    assert "liqo-tenant-consumer" in world.names("namespaces", at="cluster-a")
