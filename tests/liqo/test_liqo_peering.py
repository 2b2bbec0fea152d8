"""Peering by plain objects: what is at both sides afterwards, in every mode of the network, with any rights."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.discovery.model import Network, NetworkMode
from cloudgraft.liqo.options import GatewayOptions
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.sdk.errors import OutOfStockError
from tests.kube_api import User
from tests.liqo.liqo_world import QUICK, World, spec

HERE = "liqo-tenant-cluster-a"
THERE = "liqo-tenant-consumer"


def _with_network(world: World, network: Network) -> None:
    world.market.add("cluster-a", world.providers["cluster-a"].kubeconfig_text(), network=network)


async def test_the_consumer_comes_in_by_an_account_of_its_own(world: World) -> None:
    """What discovery holds may do more than Liqo needs: it is not handed on."""
    async with world.started() as driver:
        await driver.create(spec())
    secrets = [one for one in world.objects("secrets") if one["metadata"]["namespace"] == HERE]
    identity = next(one for one in secrets if one["metadata"]["labels"].get("liqo.io/identity-type") == "ControlPlane")
    config = json.loads(base64.b64decode(identity["data"]["kubeconfig"]))
    assert config["users"][0]["user"]["token"] != "not-a-secret"
    assert identity["metadata"]["annotations"]["liqo.io/remote-tenant-namespace"] == THERE
    binding = world.objects("rolebindings", at="cluster-a")[0]
    assert binding["roleRef"]["name"] == "liqo-remote-controlplane"
    assert binding["metadata"]["namespace"] == THERE


@pytest.mark.thorough
async def test_without_the_right_to_make_accounts_the_kubeconfig_itself_serves(world: World) -> None:
    api = world.providers["cluster-a"]
    user = api.users.add(User("peering", denied={("create", "serviceaccounts"), ("list", "namespaces")}))
    world.market.entries["cluster-a"].kubeconfig = api.kubeconfig_text(user)
    async with world.started() as driver:
        await driver.create(spec())
        await world.has_node("node-1")
    assert world.slices() == ["cluster-a/node-1"]


@pytest.mark.thorough
async def test_a_kubeconfig_without_any_right_is_told_what_it_lacks(world: World) -> None:
    api = world.providers["cluster-a"]
    denied = {("create", "serviceaccounts"), ("create", "resourceslices")}
    user = api.users.add(User("peering", denied=denied))
    world.market.entries["cluster-a"].kubeconfig = api.kubeconfig_text(user)
    async with world.started() as driver:
        with pytest.raises(OutOfStockError, match="bind its user to the ClusterRole liqo-remote-controlplane"):
            await driver.create(spec(shape="S@cluster-a"))


@pytest.mark.parametrize(
    ("network", "server_at", "client_at"),
    [
        pytest.param(Network(), "cluster-a", "", id="direct"),
        pytest.param(
            Network(mode=NetworkMode.CONSUMER_GATEWAY), "", "cluster-a", marks=pytest.mark.thorough, id="behind NAT"
        ),
        pytest.param(
            Network(mode=NetworkMode.ADDRESS_OVERRIDE, address="gw.example", port=4711, node_port=30742),
            "cluster-a",
            "",
            marks=pytest.mark.thorough,
            id="address given",
        ),
    ],
)
async def test_networks_are_connected_before_a_slice_is_asked_for(
    world: World, network: Network, server_at: str, client_at: str
) -> None:
    _with_network(world, network)
    async with world.started() as driver:
        await driver.create(spec())
    server = world.objects("gatewayservers", at=server_at)[0]
    client = world.objects("gatewayclients", at=client_at)[0]
    assert not world.objects("gatewayservers", at=client_at)
    if network.address:
        assert client["spec"]["endpoint"] == {"addresses": ["gw.example"], "port": 4711, "protocol": "UDP"}
        assert server["spec"]["endpoint"]["nodePort"] == 30742
    else:
        told = server["status"]["endpoint"]
        assert client["spec"]["endpoint"]["addresses"] == told["addresses"]
        assert client["spec"]["endpoint"]["port"] == told["port"]
    here, there = (_public(world, at=at) for at in ("", "cluster-a"))
    assert here != there
    assert world.objects("publickeies")[0]["spec"]["publicKey"] == there
    assert world.objects("publickeies", at="cluster-a")[0]["spec"]["publicKey"] == here
    assert len(world.objects("configurations")) == len(world.objects("configurations", at="cluster-a")) == 1


def _public(world: World, *, at: str) -> str:
    found = next(one for one in world.objects("secrets", at=at) if one["metadata"]["name"] == "cloudgraft-gw-keys")
    assert len(base64.b64decode(found["data"]["privateKey"])) == 32
    return str(found["data"]["publicKey"])


@pytest.mark.parametrize("is_by_options", [True, False])
@pytest.mark.thorough
async def test_a_network_that_is_not_wanted_is_not_made(world: World, *, is_by_options: bool) -> None:
    _with_network(world, Network() if is_by_options else Network(mode=NetworkMode.DISABLED))
    async with world.started(networking=GatewayOptions(enabled=not is_by_options)) as driver:
        await driver.create(spec())
    assert not world.objects("configurations")


@pytest.mark.thorough
async def test_a_network_that_never_comes_up_is_given_up_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.script.say(cluster="cluster-a", delays={"connection": 3600})
    _with_network(world, Network())
    usual = Peering._deadline

    def deadline(peering: Peering, cluster: str) -> float:  # what the other takes must not depend on speed
        return usual(peering, cluster) - (17 if cluster == "cluster-a" else 0)

    monkeypatch.setattr(Peering, "_deadline", deadline)
    async with world.started() as driver:
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]
    assert world.objects("gatewayservers", at="cluster-a"), "it was on its way"


@pytest.mark.thorough
async def test_a_peering_that_broke_is_mended(world: World) -> None:
    """Somebody removed our account at the provider: the slice is not answered, and the next look finds out why."""
    impatient = replace(QUICK, slice=timedelta(seconds=5))
    async with world.started(timeouts=impatient, cool_down=timedelta(0)) as driver:
        await driver.create(spec())
        store = world.providers["cluster-a"].store
        for key in [key for key in store.objects if key[0] in {"serviceaccounts", "secrets"} and key[1] == THERE]:
            store.delete(key, {})
        with pytest.raises(OutOfStockError):
            await driver.create(spec("node-2", shape="S@cluster-a"))
        await driver.create(spec("node-3", shape="S@cluster-a"))
        assert "cluster-a/node-3" in world.slices()
        await world.is_ready("node-3")
