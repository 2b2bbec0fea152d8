"""Computes what a cluster still has available: measured, less reserved, and nothing counted twice. Pure.

A reservation counts in full from the moment it is made until it is released or expires, whether its node is busy or
empty: the quota of a virtual node fills up pod by pod, and every pod of it may come at any moment.

An agent measures what is free after *all* pods, and tells apart what of the rest is taken by pods that Liqo runs for
other clusters (``offloaded``), and of which. Those pods sit on reservations of their cluster, so they are in both
numbers; hence, with a sum over the clusters that reserve,

    unseen = sum of max(reserved - offloaded, 0)
    available = free - unseen

The owner of a reservation begins with the id of its cluster. What one cluster uses beyond its reservations, or without
any, takes nothing from what another has reserved. An agent that does not tell whose pods they are is believed that they
are of those who reserve. Where a capacity is declared, it is the most that is ever shared, used or not:

    available <= capacity - offloaded - unseen

A cluster that never sent a heartbeat has no agent: its declared capacity counts as free, and it is Ready. From its
first heartbeat on a cluster has an agent, and silence makes it Stale. So an operator who declares a cluster before its
agent runs leaves the capacity out: then nothing is offered before something was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Heartbeat,
    PriceList,
    Reservation,
    ReservationState,
    Resources,
)
from cloudgraft.sdk.quantity import Quantity

Nanos = Mapping[str, int]
_NANOS: Final = 10**9
UNREADY: Final = {ClusterState.CORDONED: "it is cordoned", ClusterState.STALE: "its agent is silent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A cluster's database record. Times are seconds since the epoch, by the server's clock."""

    spec: ClusterSpec
    revision: int
    prices: Sequence[PriceList] = ()
    beat: Heartbeat | None = None
    beat_at: float | None = None
    reservations: Sequence[Reservation] = ()  # may include expired ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The available resources at a moment, in billionths. ``until`` is when a reservation expires."""

    available: Nanos
    shared: Nanos  # the total that it shares: the base of headroom
    nodes: int
    until: float


def moment(seconds: float) -> datetime:
    """A time of the server's clock, for people."""
    return datetime.fromtimestamp(seconds, UTC)


def nanos_of(resources: Resources) -> dict[str, int]:
    """Amounts as integers, which are fast to compare."""
    return {name: quantity.nanos for name, quantity in resources.items()}


def quantity_of(nanos: int, *, like: str = "") -> Quantity:
    """The amount as a quantity; ``like`` is the name of the resource, which determines the unit."""
    kibis, rest = divmod(nanos, 1024 * _NANOS)
    if like == "memory" and not rest and kibis < 2**53:
        return Quantity(f"{kibis}Ki") * 1
    return Quantity(f"{nanos}n") * 1


def expires(reservation: Reservation) -> float:
    """When it expires; never, once it is confirmed."""
    if reservation.state is ReservationState.CONFIRMED or reservation.expires_at is None:
        return inf
    return reservation.expires_at.timestamp()


def living(reservations: Iterable[Reservation], now: float) -> list[Reservation]:
    """Those that have not expired."""
    return [one for one in reservations if expires(one) > now]


def state_of(record: Record, now: float, stale_after: float) -> ClusterState:
    """The state of a cluster. An operator's cordon has precedence over heartbeats."""
    if record.spec.cordoned:
        return ClusterState.CORDONED
    # A heartbeat from the future, after a clock was set back, would keep a silent cluster Ready.
    if record.beat_at is not None and not -stale_after <= now - record.beat_at < stale_after:
        return ClusterState.STALE
    return ClusterState.READY


def stock_of(record: Record, now: float) -> Stock:
    """The available resources now; see above for the rules."""
    alive = living(record.reservations, now)
    capacity = nanos_of(record.spec.capacity)
    beat = record.beat
    free = nanos_of(beat.free) if beat else capacity
    offloaded = nanos_of(beat.offloaded) if beat else {}
    unseen = _unseen(alive, beat)
    available = {name: amount - unseen.get(name, 0) for name, amount in free.items()}
    for name, amount in capacity.items():
        if name in available:
            most = amount - offloaded.get(name, 0) - unseen.get(name, 0)
            available[name] = min(available[name], most)
    return Stock(
        available=available,
        shared={**free, **(nanos_of(beat.allocatable) if beat else {}), **capacity},
        nodes=len(alive),
        until=min(map(expires, alive), default=inf),
    )


def _total(alive: Iterable[Reservation]) -> dict[str, int]:
    total: dict[str, int] = {}
    for reservation in alive:
        for name, amount in nanos_of(reservation.resources).items():
            total[name] = total.get(name, 0) + amount
    return total


def _unseen(alive: Sequence[Reservation], beat: Heartbeat | None) -> dict[str, int]:
    """What is reserved and not yet in the measurement."""
    if beat is None:
        return _total(alive)
    if not beat.offloaded_by:
        return _beyond(_total(alive), nanos_of(beat.offloaded))
    by_origin: dict[str, list[Reservation]] = {}
    for one in alive:
        by_origin.setdefault(one.owner.partition("/")[0], []).append(one)
    unseen: dict[str, int] = {}
    for origin, held in by_origin.items():
        for name, amount in _beyond(_total(held), nanos_of(beat.offloaded_by.get(origin, {}))).items():
            unseen[name] = unseen.get(name, 0) + amount
    return unseen


def _beyond(reserved: Nanos, offloaded: Nanos) -> dict[str, int]:
    return {name: max(amount - offloaded.get(name, 0), 0) for name, amount in reserved.items()}


def lack_of(stock: Stock, spec: ClusterSpec, asked: Nanos) -> str:
    """Why the resources are unavailable, for a person; "" when they are available."""
    if spec.max_nodes is not None and stock.nodes >= spec.max_nodes:
        return f"it has {stock.nodes} of at most {spec.max_nodes} nodes"
    for name, amount in asked.items():
        left = stock.available.get(name)
        if amount and left is None:
            return f"it shares no {name}"
        if amount and left is not None and left < amount:
            have, want = quantity_of(max(left, 0), like=name), quantity_of(amount, like=name)
            return f"it has {have} {name} left, and {want} are needed"
    return ""


def cluster_of(record: Record, now: float, stale_after: float) -> Cluster:
    """The public view of a cluster. Its ``reserved`` is what is not yet in ``free``, so that the rest is available."""
    alive = living(record.reservations, now)
    unseen = _unseen(alive, record.beat)
    return Cluster(
        spec=record.spec,
        state=state_of(record, now, stale_after),
        free=record.beat.free if record.beat else record.spec.capacity,
        reserved={name: quantity_of(amount, like=name) for name, amount in sorted(unseen.items())},
        nodes=len(alive),
        last_heartbeat=None if record.beat_at is None else moment(record.beat_at),
        revision=record.revision,
    )
