"""What is known of one cluster at a moment, and the terms that it is held against in a search. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import Final

from cloudgraft.discovery.model import ClusterState, Need, PriceList
from cloudgraft.discovery.prices import EXACT, Amounts, amounts_of, asking_at
from cloudgraft.discovery.reservations import Nanos, Record, Stock, nanos_of, state_of, stock_of
from cloudgraft.discovery.selector import Selector

__all__ = ["Candidate", "Figures", "Terms", "candidate_of"]

_FINEST: Final = 1e9 * (1 + 1e-12)  # so that a share which floats make a little too small is not the next one down


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a cluster has and asks, roughly, as floats: good to find those that may be best, which are then few."""

    left: Mapping[str, float]
    shared: Mapping[str, float]  # infinite where it has none, so that no share of it is left
    unit: Mapping[str, float]
    per_node: float
    peering_fee: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster as it is from one moment on ``until`` another."""

    id: str
    labels: Mapping[str, str]
    is_open: bool  # ready, and with room for another node
    available: Nanos  # of its stock
    prices: PriceList | None
    currency: str  # of its prices; empty when it tells none
    figures: Figures
    record: Record
    stock: Stock
    state: ClusterState
    no_price: str  # why there are no prices
    since: float
    until: float


def candidate_of(record: Record, now: float, stale_after: float) -> Candidate:
    """What is to be known of a cluster for a search now."""
    stock = stock_of(record, now)
    asking = asking_at(record.prices, now)
    state = state_of(record, now, stale_after)
    most = record.spec.max_nodes
    # When what is heard of it changes its state by itself: after silence, or because its last word was of the future.
    edges = () if record.beat_at is None else (record.beat_at - stale_after, record.beat_at + stale_after)
    return Candidate(
        id=record.spec.id,
        labels=record.spec.labels,
        is_open=state is ClusterState.READY and (most is None or stock.nodes < most),
        available=stock.available,
        prices=asking.prices,
        currency="" if asking.prices is None else asking.prices.currency,
        figures=_figures(stock, asking.prices),
        record=record,
        stock=stock,
        state=state,
        no_price=asking.why_not,
        since=now,
        until=min(stock.until, asking.until, *(edge for edge in edges if edge > now)),
    )


def _figures(stock: Stock, prices: PriceList | None) -> Figures:
    return Figures(
        left={name: float(amount) for name, amount in stock.available.items()},
        shared={name: float(amount) if amount > 0 else inf for name, amount in stock.shared.items()},
        unit={} if prices is None else {name: float(price) for name, price in prices.unit.items()},
        per_node=0.0 if prices is None else float(prices.fixed_per_node),
        peering_fee=0.0 if prices is None else float(prices.peering_fee),
    )


class Terms:
    """A need, prepared so that to hold one cluster against it costs little: there may be ten thousand.

    All is done for all clusters, one step after another: comprehensions take half the time of one loop with all steps
    in it. Prices are compared over the whole horizon, in which a peering fee is paid once: nothing is divided, so a
    price that is just at a cap is not above it by a last digit.
    """

    def __init__(self, need: Need) -> None:
        self.tests = Selector.parse(need.label_selector).tests
        self.amounts: Amounts = amounts_of(need.resources)
        self.asked = {name: amount for name, amount in nanos_of(need.resources).items() if amount}
        self.horizon = need.horizon_hours
        self._over_horizon = [(name, EXACT.multiply(amount, self.horizon)) for name, amount in self.amounts if amount]
        self._costs: dict[tuple[int, bool], Decimal] = {}  # many clusters share one list of prices

    def fitting(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that are open, have enough and fit the selector, whatever they ask."""
        found = [one for one in candidates if one.is_open]
        for name, amount in self.asked.items():
            found = [one for one in found if one.available.get(name, -1) >= amount]
        for test in self.tests:
            found = [one for one in found if test(one.labels)]
        return found

    def cost(self, prices: PriceList, *, peered: bool) -> Decimal:
        """What a node of that shape costs over the whole horizon, exactly."""
        key = id(prices), peered
        total = self._costs.get(key)
        if total is None:
            total = prices.fixed_per_node * self.horizon
            if not peered:
                total += prices.peering_fee
            for name, amount in self._over_horizon:
                if name in prices.unit:
                    total += prices.unit[name] * amount
            self._costs[key] = total
        return total

    def rough_costs(self, found: Sequence[Candidate], peered: Collection[str]) -> list[float]:
        """The same of many, roughly; nothing for those that tell no price."""
        hours = float(self.horizon)
        figures = [one.figures for one in found]
        costs = [each.per_node * hours + each.peering_fee for each in figures]
        if peered:
            costs = [
                cost - one.figures.peering_fee if one.id in peered else cost
                for cost, one in zip(costs, found, strict=True)
            ]
        for name, exact in self._over_horizon:
            amount = float(exact)
            costs = [
                cost + each.unit[name] * amount if name in each.unit else cost
                for cost, each in zip(costs, figures, strict=True)
            ]
        return costs

    def headroom(self, one: Candidate) -> float:
        """The share of the scarcest resource that would be left."""
        shared = one.stock.shared
        shares = [
            (one.available[name] - amount) / shared[name] if shared.get(name, 0) > 0 else 0.0
            for name, amount in self.asked.items()
        ]
        return max(0.0, min(shares, default=1.0))

    def by_headroom(self, found: Sequence[Candidate]) -> list[float]:
        """Ranks of many by what would be left, most first, in billionths: less may be an error of floats."""
        figures = [one.figures for one in found]
        asked = [(name, float(amount)) for name, amount in self.asked.items()]
        if not asked:
            return [0.0] * len(figures)
        name, amount = asked[0]
        least = [(each.left[name] - amount) / each.shared[name] for each in figures]
        for name, amount in asked[1:]:
            least = [
                least if least < (share := (each.left[name] - amount) / each.shared[name]) else share
                for least, each in zip(least, figures, strict=True)
            ]
        return [-int(share * _FINEST) for share in least]
