"""Whose a reservation is: of the client that made it, by its name in the server's file, whichever replica asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Reservation, ReservationState
from cloudgraft.sdk.errors import NotFoundError, PermissionDeniedError
from cloudgraft.sdk.quantity import Quantity
from tests.discovery.web.discovery_server import ServedDiscovery

AMOUNTS = {"cpu": Quantity("2")}
Change = Callable[[DiscoveryClient, Reservation], Awaitable[object]]


def _renew(client: DiscoveryClient, held: Reservation) -> Awaitable[object]:
    return client.reserve(held.cluster, AMOUNTS, owner=held.owner, seconds=600)


def _reserve_more(client: DiscoveryClient, held: Reservation) -> Awaitable[object]:
    return client.reserve(held.cluster, {"cpu": Quantity("3")}, owner=held.owner, seconds=600)


def _confirm(client: DiscoveryClient, held: Reservation) -> Awaitable[object]:
    return client.confirm(held.id)


def _release(client: DiscoveryClient, held: Reservation) -> Awaitable[object]:
    return client.release(held.id)


async def _held(town: ServedDiscovery) -> Reservation:
    async with town.as_("boss") as boss, town.as_("manager") as manager:
        await boss.put_cluster(ClusterSpec(id="turin", capacity={"cpu": Quantity("8")}))
        return await manager.reserve("turin", AMOUNTS, owner="prod/m-1", seconds=60)


@pytest.mark.parametrize("change", [_renew, _reserve_more, _confirm, _release])
async def test_another_node_manager_is_refused_and_changes_nothing(town: ServedDiscovery, change: Change) -> None:
    held = await _held(town)
    async with town.as_("rival") as rival, town.as_("viewer") as viewer:
        with pytest.raises(PermissionDeniedError, match="not of rival") as refused:
            await change(rival, held)
        assert await viewer.reservations("") == [held]
    for secret in (held.id, "manager", "prod", "turin"):  # it is not told whose it is, nor what there is
        assert secret not in refused.value.message


async def test_the_refusal_is_in_the_audit_log(town: ServedDiscovery) -> None:
    held = await _held(town)
    async with town.web("rival") as web:
        with pytest.raises(PermissionDeniedError):
            await web.request("DELETE", f"/v1/reservations/{held.id}")
    assert '"caller": "rival"' in town.audit.read_text()
    assert '"status": 403' in town.audit.read_text()


async def test_a_replica_goes_on_with_what_the_other_has_reserved(town: ServedDiscovery) -> None:
    """Failover: two processes, one name in the server's file."""
    held = await _held(town)
    async with town.as_("manager") as replica:
        assert (await replica.reserve("turin", AMOUNTS, owner="prod/m-1", seconds=600)).id == held.id
        assert (await replica.confirm(held.id)).state is ReservationState.CONFIRMED
        await replica.release(held.id)
        assert list(await replica.reservations("")) == []


async def test_an_operator_may_release_any_but_renews_and_confirms_none_for_others(town: ServedDiscovery) -> None:
    held = await _held(town)
    async with town.as_("boss") as boss:
        for change in (_renew, _confirm):
            with pytest.raises(PermissionDeniedError):
                await change(boss, held)
        assert await boss.reservations("") == [held]
        await boss.release(held.id)
        assert list(await boss.reservations("")) == []


async def test_once_released_the_owner_and_cluster_are_free_for_anybody(town: ServedDiscovery) -> None:
    held = await _held(town)
    async with town.as_("manager") as manager, town.as_("rival") as rival:
        await manager.release(held.id)
        anew = await rival.reserve("turin", AMOUNTS, owner="prod/m-1", seconds=60)
        with pytest.raises(PermissionDeniedError):
            await manager.confirm(anew.id)
        with pytest.raises(NotFoundError):
            await manager.confirm(held.id)
