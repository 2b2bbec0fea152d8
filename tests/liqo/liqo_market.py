"""A discovery of the tests' own, in memory: small, but it never oversubscribes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Market,
    Need,
    Network,
    NetworkMode,
    Offer,
    Reservation,
    ReservationState,
    Resources,
    Strategy,
)
from cloudgraft.sdk.errors import NotFoundError, OutOfStockError, UnavailableError
from cloudgraft.sdk.quantity import Quantity

NO_NETWORK = Network(mode=NetworkMode.DISABLED)


@dataclass
class Entry:
    """One cluster."""

    spec: ClusterSpec
    price: Decimal | None
    kubeconfig: str = field(repr=False)
    state: ClusterState = ClusterState.READY


class MemoryMarket(Market):
    """It lives as long as the test, whatever happens to drivers."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.reserved: dict[str, Reservation] = {}
        self.is_away = False
        self.calls: list[str] = []
        self._ids = itertools.count(1)

    def add(self, name: str, kubeconfig: str, *, price: str | None = "1", network: Network = NO_NETWORK) -> None:
        capacity = {"cpu": Quantity("16"), "memory": Quantity("64Gi"), "pods": Quantity("200")}
        spec = ClusterSpec(id=name, capacity=capacity, network=network)
        cost = None if price is None else Decimal(price)
        self.entries[name] = Entry(spec, cost, kubeconfig)

    def of(self, cluster: str) -> list[Reservation]:
        return [one for one in self.reserved.values() if one.cluster == cluster]

    def expire(self) -> None:
        self.reserved = {key: one for key, one in self.reserved.items() if one.state is ReservationState.CONFIRMED}

    async def search(self, need: Need) -> Sequence[Offer]:
        self._call("search")
        found = [name for name in self.entries if not self._why_not(name, need)]
        by_price = need.strategy is not Strategy.FIRST_FIT
        found.sort(key=lambda name: ((self.entries[name].price or Decimal(0)) if by_price else Decimal(0), name))
        return [
            Offer(
                cluster=name,
                price_per_hour=self.entries[name].price,
                currency="EUR",
                peered=name in need.peered,
                headroom=0.5,
                score=0.0,
                reasons=(),
                network=self.entries[name].spec.network,
                resource_slice_class=self.entries[name].spec.resource_slice_class,
            )
            for name in found
        ]

    async def why_not(self, need: Need) -> Mapping[str, str]:
        self._call("why_not")
        told = {name: self._why_not(name, need) for name in self.entries}
        return {name: why for name, why in told.items() if why}

    async def reserve(self, cluster: str, resources: Resources, *, owner: str, seconds: float) -> Reservation:
        self._call("reserve")
        again = next((one for one in self.of(cluster) if one.owner == owner), None)
        if again is not None:
            return again
        if cluster not in self.entries:
            raise NotFoundError(f"no cluster {cluster}")
        if not self._fits(cluster, resources):
            raise OutOfStockError(f"{cluster} has no longer that much")
        made = Reservation(
            id=f"r{next(self._ids)}",
            cluster=cluster,
            owner=owner,
            resources=resources,
            state=ReservationState.HELD,
            expires_at=None,
        )
        self.reserved[made.id] = made
        return made

    async def confirm(self, reservation: str) -> Reservation:
        self._call("confirm")
        if reservation not in self.reserved:
            raise NotFoundError(f"no reservation {reservation}")
        confirmed = replace(self.reserved[reservation], state=ReservationState.CONFIRMED)
        self.reserved[reservation] = confirmed
        return confirmed

    async def release(self, reservation: str) -> None:
        self._call("release")
        self.reserved.pop(reservation, None)

    async def reservations(self, owner_prefix: str) -> Sequence[Reservation]:
        self._call("reservations")
        return [one for one in self.reserved.values() if one.owner.startswith(owner_prefix)]

    async def clusters(self) -> Sequence[Cluster]:
        self._call("clusters")
        return [
            Cluster(
                spec=entry.spec,
                state=entry.state,
                free=entry.spec.capacity,
                reserved=self._reserved(name),
                nodes=len(self.of(name)),
                last_heartbeat=None,
                revision=1,
            )
            for name, entry in self.entries.items()
        ]

    async def credentials(self, cluster: str) -> str:
        self._call("credentials")
        if cluster not in self.entries:
            raise NotFoundError(f"no cluster {cluster}")
        return self.entries[cluster].kubeconfig

    def _call(self, name: str) -> None:
        if self.is_away:
            raise UnavailableError("discovery cannot be reached")
        self.calls.append(name)

    def _why_not(self, name: str, need: Need) -> str:
        entry = self.entries[name]
        if need.clusters and name not in need.clusters:
            return "another is asked for"
        if name in need.exclude:
            return "it is excluded"
        if entry.state is not ClusterState.READY:
            return f"it is {entry.state.value}"
        if need.price_cap is not None and (entry.price is None or entry.price > need.price_cap):
            return "it is too dear"
        return "" if self._fits(name, need.resources) else "not enough is free"

    def _reserved(self, name: str) -> dict[str, Quantity]:
        total: dict[str, Quantity] = {}
        for one in self.of(name):
            for key, amount in one.resources.items():
                total[key] = total.get(key, Quantity(0)) + amount
        return total

    def _fits(self, name: str, resources: Resources) -> bool:
        used = [one.resources for one in self.of(name)]
        capacity = self.entries[name].spec.capacity
        return all(
            sum((one.get(key, Quantity(0)).value for one in used), amount.value) <= capacity[key].value
            for key, amount in resources.items()
        )
