"""Holds the searchable state of each cluster, and all of it in columns for fast searches. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from cloudgraft.discovery.model import ClusterState, PriceList
from cloudgraft.discovery.search.prices import asking_at
from cloudgraft.discovery.search.reservations import Nanos, Record, Stock, state_of, stock_of
from cloudgraft.discovery.search.selector import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster's state from one moment ``until`` another."""

    id: str
    labels: Mapping[str, str]
    is_open: bool  # ready, and with room for another node
    available: Nanos  # of its stock
    prices: PriceList | None
    currency: str  # of its prices; empty when it has none
    record: Record
    stock: Stock
    state: ClusterState
    no_price: str  # why there are no prices
    since: float
    until: float


def candidate_of(record: Record, now: float, stale_after: float) -> Candidate:
    """Computes the candidate of a cluster for a search now."""
    stock = stock_of(record, now)
    asking = asking_at(record.prices, now)
    state = state_of(record, now, stale_after)
    most = record.spec.max_nodes
    # When its state changes by time alone: after silence, or because its last heartbeat is in the future.
    edges = () if record.beat_at is None else (record.beat_at - stale_after, record.beat_at + stale_after)
    return Candidate(
        id=record.spec.id,
        labels=record.spec.labels,
        is_open=state is ClusterState.READY and (most is None or stock.nodes < most),
        available=stock.available,
        prices=asking.prices,
        currency="" if asking.prices is None else asking.prices.currency,
        record=record,
        stock=stock,
        state=state,
        no_price=asking.why_not,
        since=now,
        until=min(stock.until, asking.until, *(edge for edge in edges if edge > now)),
    )


# -- All clusters in columns -------------------------------------------------------------------------------------------
# Each column is one array of floats. Ten thousand clusters are ten thousand scattered objects: reading a figure from
# each costs more than computing with it. Floats are rough: near ties are compared exactly, by candidate.


_MOST: Final = 64  # columns; a search may name any resource and any selector

Figure = Callable[[Candidate], float]


class Columns:
    """Candidates by position, and columns of their figures: built on first use, then kept current."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.candidates = list(candidates)
        self.currencies = [one.currency for one in self.candidates]
        self._columns: dict[tuple[str, str], tuple[Figure, array[float]]] = {}

    def put(self, place: int, one: Candidate) -> None:
        """Sets the candidate of a position; the one after the last appends."""
        span = slice(place, place + 1)
        self.candidates[span] = [one]
        self.currencies[span] = [one.currency]
        for figure, column in self._columns.values():
            column[span] = array("d", [figure(one)])

    def remove(self, place: int) -> Candidate | None:
        """Removes one. The last one moves to its position, and is returned, unless it was the last."""
        last = len(self.candidates) - 1
        moved = self.candidates[last] if place != last else None
        if moved is not None:
            self.put(place, moved)
        del self.candidates[last], self.currencies[last]
        for _, column in self._columns.values():
            del column[last]
        return moved

    @property
    def is_open(self) -> array[float]:
        """1 for those that are ready and have room for another node."""
        return self._column("open", "", lambda _: lambda one: float(one.is_open))

    def fits(self, selector: str) -> array[float]:
        """1 for those whose labels match."""
        return self._column("fits", selector, _fits)

    def left(self, resource: str) -> array[float]:
        """The available amount of a resource; below 0 where there is none."""
        return self._column("left", resource, lambda name: lambda one: one.available.get(name, -1))

    def shared(self, resource: str) -> array[float]:
        """The total shared amount; infinite where it is 0, so that the remaining share is 0."""
        return self._column("shared", resource, lambda name: lambda one: _or_inf(one.stock.shared, name))

    def unit(self, resource: str) -> array[float]:
        """The price of a unit; 0 without a price."""
        return self._column("unit", resource, _unit)

    @property
    def per_node(self) -> array[float]:
        """The price of a node, besides its resources."""
        return self._column("node", "", lambda _: lambda one: float(one.prices.fixed_per_node) if one.prices else 0)

    @property
    def peering_fee(self) -> array[float]:
        """The one-time price of peering."""
        return self._column("fee", "", lambda _: lambda one: float(one.prices.peering_fee) if one.prices else 0)

    def warm(self) -> None:
        """Builds the columns that nearly every search needs, so that the first one is fast."""
        for resource in ("cpu", "memory", "pods"):
            for column in (self.left, self.shared, self.unit):
                column(resource)
        _ = self.is_open, self.per_node, self.peering_fee

    def _column(self, kind: str, name: str, figure_of: Callable[[str], Figure]) -> array[float]:
        found = self._columns.get((kind, name))
        if found is None:
            if len(self._columns) >= _MOST:
                self._columns.clear()
            figure = figure_of(name)
            found = self._columns[kind, name] = figure, array("d", map(figure, self.candidates))
        return found[1]


def _fits(selector: str) -> Figure:
    wanted = Selector.parse(selector)
    return lambda one: float(wanted.matches(one.labels))


def _unit(resource: str) -> Figure:
    return lambda one: float(one.prices.unit.get(resource, 0)) if one.prices else 0


def _or_inf(shared: Mapping[str, int], name: str) -> float:
    whole = shared.get(name, 0)
    return whole if whole > 0 else inf
