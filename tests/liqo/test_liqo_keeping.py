"""What goes on beside the calls: deletion, reservations, peerings that nobody needs, and what is not ours."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloudgraft.liqo import manifests
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import PermissionDeniedError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.kube_api import Fault, Json, RefusedError, Request
from tests.liqo.liqo_world import QUICK, World, spec

OURS = "app.kubernetes.io/managed-by"
QUICK_KEEPER: dict[str, Any] = {"look_every": timedelta(seconds=0.1)}
AT_ONCE: dict[str, Any] = {**QUICK_KEEPER, "unpeer_after": timedelta(seconds=0)}


@pytest.mark.thorough
async def test_a_machine_is_deleting_until_its_node_is_gone(world: World) -> None:
    world.script.say(delays={"delete": 0.5})
    async with world.started() as driver:
        machine = await driver.create(spec())
        await world.has_node("node-1")
        await driver.delete(machine)
        while world.node("node-1") is not None:  # Liqo drains it
            assert [one.state for one in await driver.list()] == [MachineState.DELETING] or world.node("node-1") is None
            await driver.delete(machine)
        await until(lambda: not world.slices())
        await until(lambda: not world.market.reserved, what="what it used is given back")
        assert await driver.list() == []
        await driver.delete(machine)


@pytest.mark.thorough
async def test_only_the_very_machine_is_deleted(world: World) -> None:
    """Law 4: a name that was given again is another machine."""
    async with world.started() as driver:
        machine = await driver.create(spec())
        await driver.delete(Machine(name="node-1", machine_id="an earlier one"))
        assert [one.state for one in await driver.list()] == [MachineState.RUNNING]
        await driver.delete(Machine(name="node-2", machine_id=machine.machine_id))
        assert world.slices() == ["cluster-a/node-1"]
        assert len(world.market.reserved) == 1


async def test_a_peering_ends_when_its_last_slice_is_gone(world: World) -> None:
    async with world.started(**AT_ONCE) as driver:
        machine = await driver.create(spec())
        namespace = "liqo-tenant-cluster-a"
        assert namespace in world.names("namespaces")
        await driver.delete(machine)
        await until(lambda: namespace not in world.names("namespaces"), what="the end of the peering here")
    assert "liqo-tenant-consumer" not in world.names("namespaces", at="cluster-a")
    for plural in ("tenants", "serviceaccounts", "rolebindings"):
        assert world.names(plural, at="cluster-a") == []


@pytest.mark.thorough
async def test_a_cluster_that_is_peered_with_again_gives_nodes_that_become_ready(world: World) -> None:
    """Liqo would go on to ask it with the credentials of the first time, which are revoked, and take it for dead."""
    async with world.started(**AT_ONCE) as driver:
        machine = await driver.create(spec())
        await world.is_ready("node-1")
        await driver.delete(machine)
        await until(lambda: "liqo-tenant-cluster-a" not in world.names("namespaces"), what="the end of the peering")
        assert not world.objects("foreignclusters")[0]["status"].get("apiServerUrl")
        await driver.create(spec("node-2"))
        await world.is_ready("node-2")


@pytest.mark.thorough
async def test_a_peering_stays_while_it_is_used(world: World) -> None:
    async with world.started(**QUICK_KEEPER) as driver:
        first, _second = await driver.create(spec()), await driver.create(spec("node-2"))
        await driver.delete(first)
        await until(lambda: world.slices() == ["cluster-a/node-2"] and len(world.market.reserved) == 1)
        looks = len(world.market.calls)
        await until(lambda: len(world.market.calls) > looks + 10, what="the maintenance has looked several times")
        assert world.names("tenants", at="cluster-a") == ["consumer"]


@pytest.mark.thorough
async def test_a_peering_stays_for_a_grace_after_its_last_slice(world: World) -> None:
    async with world.started(**QUICK_KEEPER) as driver:  # its grace is of minutes
        await driver.delete(await driver.create(spec()))
        await until(lambda: not world.slices() and not world.market.reserved)
        looks = len(world.market.calls)
        await until(lambda: len(world.market.calls) > looks + 10, what="the maintenance has looked several times")
        assert world.names("tenants", at="cluster-a") == ["consumer"]
        assert "liqo-tenant-cluster-a" in world.names("namespaces")


@pytest.mark.thorough
async def test_a_peering_that_somebody_else_made_is_used_and_never_ended(world: World) -> None:
    async with world.started(**QUICK_KEEPER) as driver:
        await driver.delete(await driver.create(spec()))
        await until(lambda: not world.slices())
    _give_away(world)
    async with world.started(**AT_ONCE) as driver:
        await driver.delete(await driver.create(spec("node-2")))
        await until(lambda: not world.slices() and not world.market.reserved)
        looks = len(world.market.calls)
        await until(lambda: len(world.market.calls) > looks + 10, what="the maintenance has looked several times")
    assert world.names("tenants", at="cluster-a") == ["consumer"]
    assert "liqo-tenant-cluster-a" in world.names("namespaces")


def _consumed_by_cluster_a(world: World) -> None:
    """A cloudgraft over there has peered with us: it carries the same label as what ours makes."""
    store, space = world.consumer.store, "liqo-tenant-cluster-a"
    with suppress(RefusedError):  # it is there
        store.create("namespaces", "", dict(manifests.namespace("cluster-a", "cluster-a")))
    for plural, manifest in (
        ("tenants", manifests.tenant("cluster-a")),
        ("serviceaccounts", manifests.service_account("cluster-a")),
        ("secrets", manifests.token_secret("cluster-a")),
    ):
        store.create(plural, space, dict(manifest))


def _their_way_is_whole(world: World) -> bool:
    tokens = [one for one in world.objects("secrets") if one["metadata"]["name"] == manifests.TOKEN]
    there = (world.names("tenants"), world.names("serviceaccounts"), len(tokens))
    return there == (["cluster-a"], ["cloudgraft-consumer"], 1) and "liqo-tenant-cluster-a" in world.names("namespaces")


@pytest.mark.thorough
@pytest.mark.parametrize("uses_it", [False, True], ids=["one way", "both ways"])
async def test_what_a_peers_own_cloudgraft_made_here_is_never_taken_away(world: World, *, uses_it: bool) -> None:
    """Law 4: the peer consumes us, whether we consume it or not; of ours, only our own way ends."""
    _consumed_by_cluster_a(world)
    async with world.started(**AT_ONCE) as driver:
        if uses_it:
            await driver.delete(await driver.create(spec()))
            await until(lambda: not world.objects("tenants", at="cluster-a"), what="the end of our own way")
        looks = len(world.market.calls)
        await until(lambda: len(world.market.calls) > looks + 10, what="the maintenance has looked several times")
    assert _their_way_is_whole(world)
    assert _identities(world) == []


def _its_tenant(world: World) -> None:
    """Without an account of its own: its kubeconfig may not make any, and serves itself."""
    world.consumer.store.create("tenants", "liqo-tenant-cluster-a", dict(manifests.tenant("cluster-a")))


def _seen_there(world: World) -> None:
    _its_tenant(world)
    identity = dict(manifests.identity_secret("consumer", "liqo-tenant-cluster-a", "a kubeconfig"))
    world.providers["cluster-a"].store.create("secrets", "liqo-tenant-consumer", identity)


def _begun_there(world: World) -> None:
    _its_tenant(world)
    world.providers["cluster-a"].store.create("secrets", "liqo-tenant-consumer", dict(manifests.note("consumer")))


def _seen_by_liqo(world: World) -> None:
    """With nobody to ask over there."""
    _its_tenant(world)
    del world.market.entries["cluster-a"]

    def matches(request: Request) -> bool:
        return (request.method, request.plural, request.name) == ("GET", "foreignclusters", "cluster-a")

    told = json.dumps({"metadata": {"name": "cluster-a"}, "status": {"role": "Consumer"}}).encode()
    world.consumer.faults.append(Fault(matches, 200, told, {"Content-Type": "application/json"}, times=1_000_000))


async def _used_and_idle(world: World) -> None:
    """A peering that was used once, and a driver that has ended since."""
    async with world.started(**QUICK_KEEPER) as driver:
        await driver.delete(await driver.create(spec()))
        await until(lambda: not world.slices() and not world.market.reserved)
    world.market.reserved.clear()  # a look that ends in the middle may leave something held, until that expires


@pytest.mark.thorough
@pytest.mark.parametrize("consumed", [_consumed_by_cluster_a, _seen_there, _begun_there, _seen_by_liqo])
async def test_our_own_way_ends_once_and_leaves_the_namespace_to_a_peer_that_came_in_by_any_other(
    world: World, consumed: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 4: its Tenant would go with the namespace, though that was made for our sake."""
    await _used_and_idle(world)
    consumed(world)
    asked, carried_out = list[str](), list[str]()
    undo, really = Peering.undo, Peering._undo

    async def counted(peering: Peering, cluster: str, is_needed: Callable[[], bool]) -> bool:
        asked.append(cluster)
        return await undo(peering, cluster, is_needed)

    async def counted_really(peering: Peering, cluster: str, space: str, *, remove_space: bool) -> bool:
        carried_out.append(cluster)
        return await really(peering, cluster, space, remove_space=remove_space)

    monkeypatch.setattr(Peering, "undo", counted)
    monkeypatch.setattr(Peering, "_undo", counted_really)
    async with world.started(**AT_ONCE):
        await until(lambda: len(asked) >= 3, what="the maintenance has looked several times")
    assert carried_out == ["cluster-a"]
    assert _identities(world) == []
    assert world.names("tenants") == ["cluster-a"]
    assert "liqo-tenant-cluster-a" in world.names("namespaces")
    assert world.names("tenants", at="cluster-a") == ([] if "cluster-a" in world.market.entries else ["consumer"])


@pytest.mark.thorough
async def test_a_way_that_ended_and_began_anew_ends_again(world: World) -> None:
    """While the peer consumes us, so that the namespace was there all the time."""
    _consumed_by_cluster_a(world)
    async with world.started(**AT_ONCE) as driver:
        for name in ("node-1", "node-2"):
            await driver.delete(await driver.create(spec(name)))
            await until(lambda: not world.objects("tenants", at="cluster-a"), what="the end of our own way")
    assert _their_way_is_whole(world)


@pytest.mark.thorough
async def test_a_peering_that_cannot_be_ended_keeps_no_other_from_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = Peering.undo

    async def stuck(peering: Peering, cluster: str, is_needed: Callable[[], bool]) -> bool:
        if cluster == "cluster-a":
            raise UnavailableError("the API gives no answer for this one")
        return await undo(peering, cluster, is_needed)

    monkeypatch.setattr(Peering, "undo", stuck)
    async with world.started(**AT_ONCE) as driver:
        for machine in [await driver.create(spec(f"node-{name}", shape=f"S@cluster-{name}")) for name in "ab"]:
            await driver.delete(machine)
        await until(lambda: "liqo-tenant-cluster-b" not in world.names("namespaces"), what="the end of the other")
    assert "liqo-tenant-cluster-a" in world.names("namespaces")


@pytest.mark.thorough
async def test_a_peering_ends_here_also_when_discovery_has_no_credentials_any_more(world: World) -> None:
    """What was made there stays: nobody can reach it."""
    await _used_and_idle(world)
    del world.market.entries["cluster-a"]
    async with world.started(**AT_ONCE):
        await until(
            lambda: "liqo-tenant-cluster-a" not in world.names("namespaces"), what="the end of the peering here"
        )
    assert world.names("tenants", at="cluster-a") == ["consumer"]


def _identities(world: World) -> list[Json]:
    return [one for one in world.objects("secrets") if "liqo.io/identity-type" in one["metadata"]["labels"]]


def _unmark(world: World, *, is_somebodys: bool) -> None:
    """As if the peering was made before namespaces and notes said so, perhaps in a namespace of liqoctl's."""

    def unmarked(old: Json) -> Json:
        labels = {key: value for key, value in old["metadata"]["labels"].items() if key != "cloudgraft/consumer"}
        return {**old, "metadata": {**old["metadata"], "labels": labels | ({OURS: "somebody"} if is_somebodys else {})}}

    store = world.consumer.store
    store.patch(("namespaces", "", "liqo-tenant-cluster-a"), unmarked)
    store.delete(("secrets", "liqo-tenant-cluster-a", manifests.NOTE), {})


@pytest.mark.thorough
@pytest.mark.parametrize("is_somebodys", [False, True], ids=["earlier", "of somebody else"])
async def test_the_end_of_a_peering_that_was_interrupted_is_finished_later(world: World, *, is_somebodys: bool) -> None:
    """Where the identity is gone, and the provider was away, nothing but a note of ours says that there is more."""
    await _used_and_idle(world)
    _unmark(world, is_somebodys=is_somebodys)
    entry = world.market.entries["cluster-a"]
    right, entry.kubeconfig = entry.kubeconfig, "no kubeconfig"
    async with world.started(**AT_ONCE):
        await until(lambda: not _identities(world), what="the end of the identity")
    assert world.names("tenants", at="cluster-a") == ["consumer"]
    entry.kubeconfig = right
    async with world.started(**AT_ONCE):
        for plural in ("tenants", "serviceaccounts", "rolebindings"):
            await until(lambda plural=plural: not world.names(plural, at="cluster-a"), what=f"no {plural}")  # type: ignore[misc]
        await until(lambda: not [one for one in world.objects("secrets") if _is_of_the_peering(one)], what="no note")
    assert ("liqo-tenant-cluster-a" in world.names("namespaces")) == is_somebodys


def _is_of_the_peering(one: Json) -> bool:
    return bool(one["metadata"]["namespace"] == "liqo-tenant-cluster-a")


def _give_away(world: World) -> None:
    """From now on another's label is on everything."""
    for store in (world.consumer.store, world.providers["cluster-a"].store):
        for key, one in list(store.objects.items()):
            if (one["metadata"].get("labels") or {}).get(OURS) == "cloudgraft":
                store.patch(key, _labelled)


def _labelled(old: Json) -> Json:
    metadata = {**old["metadata"], "labels": {**old["metadata"]["labels"], OURS: "somebody"}}
    return {**old, "metadata": metadata}


@pytest.mark.thorough
async def test_reservations_of_machines_that_are_gone_are_given_back(world: World) -> None:
    async with world.started() as driver:
        machine = await driver.create(spec())
    world.market.is_away = True
    async with world.started() as driver:
        await driver.delete(machine)
        await until(lambda: not world.slices())
    world.market.is_away = False
    async with world.started():
        await until(lambda: not world.market.reserved)


@pytest.mark.thorough
async def test_a_machine_whose_reservation_got_lost_gets_one_again(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec())
    world.market.reserved.clear()
    async with world.started():
        await until(lambda: world.reserved() == ["cluster-a:consumer/node-1:confirmed"])


@pytest.mark.thorough
async def test_what_is_held_for_a_machine_that_is_being_made_is_left_alone(world: World) -> None:
    """Two node managers: one must not give back what the other is about to use."""
    cluster = world.market.entries["cluster-a"].spec
    await world.market.reserve("cluster-a", {"cpu": cluster.capacity["cpu"]}, owner="consumer/node-9", seconds=60)
    async with world.started(**AT_ONCE):
        looks = len(world.market.calls)
        await until(lambda: len(world.market.calls) > looks + 10)
    assert world.reserved() == ["cluster-a:consumer/node-9:held"]


@pytest.mark.thorough
async def test_a_cluster_whose_node_never_became_ready_cools_down(world: World) -> None:
    world.script.say(cluster="cluster-a", never_ready=True)
    impatient = replace(QUICK, node=timedelta(microseconds=1))
    async with world.started(timeouts=impatient) as driver:
        await driver.delete(await driver.create(spec()))
        await driver.create(spec("node-2"))
        assert world.slices()[-1] == "cluster-b/node-2"


@pytest.mark.thorough
async def test_a_machine_that_is_deleted_before_its_time_speaks_against_nobody(world: World) -> None:
    world.script.say(cluster="cluster-a", never_ready=True)
    async with world.started() as driver:
        await driver.delete(await driver.create(spec()))
        await driver.create(spec("node-2"))
        assert "cluster-a/node-2" in world.slices()


@pytest.mark.thorough
async def test_the_node_is_labelled_with_its_shape_as_the_template_is(world: World) -> None:
    async with world.started() as driver:
        await driver.create(spec())
        await world.has_node("node-1")

        def is_labelled() -> bool:
            found = world.objects("virtualnodes")[0]["spec"].get("labels") or {}
            return found.get("node.kubernetes.io/instance-type") == "S"

        await until(is_labelled)


@pytest.mark.thorough
@pytest.mark.parametrize("failures", [1, 1000], ids=["once", "always"])
async def test_a_label_that_cannot_be_set_at_once_costs_no_node_its_provider_id(world: World, failures: int) -> None:
    """It is set before the providerID, which is the sign that nothing is left to do."""

    def is_label(request: Request) -> bool:
        return (request.verb, request.plural) == ("patch", "virtualnodes") and bool(world.node("node-1"))

    world.consumer.faults.append(Fault(is_label, 500, b"", {"Content-Type": "text/plain"}, times=failures))
    async with world.started() as driver:
        await driver.create(spec())
        await world.has_node("node-1")
    labels = world.objects("virtualnodes")[0]["spec"].get("labels") or {}
    assert labels.get("node.kubernetes.io/instance-type") == ("S" if failures == 1 else None)


async def test_what_another_client_reserved_keeps_nothing_else_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Discovery does not let us release it, and there is nothing to be done but to tell, once."""
    market = world.market
    gone = [
        await market.reserve("cluster-a", {"cpu": Quantity(1)}, owner=f"consumer/{name}", seconds=60) for name in "ab"
    ]
    for one in gone:
        await market.confirm(one.id)
    release, refusals = market.release, list[str]()

    async def refusing(reservation: str) -> None:
        if reservation == gone[0].id:
            refusals.append(reservation)
            raise PermissionDeniedError("it is another client's")
        await release(reservation)

    monkeypatch.setattr(market, "release", refusing)
    async with world.started(**QUICK_KEEPER):
        await until(lambda: gone[1].id not in market.reserved, what="the other one is given back")
        await until(lambda: len(refusals) > 2, what="more rounds")
    assert world.reserved() == ["cluster-a:consumer/a:confirmed"]
    told = [
        one
        for one in caplog.records
        if one.levelno >= logging.WARNING and "cannot release the reservation" in one.message
    ]
    assert len(told) == 1
