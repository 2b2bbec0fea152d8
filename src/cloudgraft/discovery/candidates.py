"""What is known of one cluster at a moment, and the terms that it is held against in a search. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from cloudgraft.discovery.model import ClusterState, Need, PriceList, Strategy
from cloudgraft.discovery.prices import Amounts, amounts_of, asking_at, hourly
from cloudgraft.discovery.reservations import Record, Stock, nanos_of, state_of, stock_of
from cloudgraft.discovery.selector import Selector

__all__ = ["Candidate", "Fitting", "Terms", "Verdict", "candidate_of", "terms_of", "verdict_on"]

_REMEMBERED: Final = 16  # terms, by each candidate

Fitting = tuple["Decimal | None", "Decimal | None", float]  # the price unless peered, and if; the headroom, if asked
Verdict = Fitting | tuple[()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster as it is from one moment on ``until`` another."""

    id: str
    labels: Mapping[str, str]
    is_open: bool  # ready, and with room for another node
    prices: PriceList | None
    record: Record
    stock: Stock
    state: ClusterState
    no_price: str  # why there are no prices
    since: float
    until: float
    verdicts: dict[Terms, Verdict] = field(default_factory=dict, compare=False)


def candidate_of(record: Record, now: float, stale_after: float) -> Candidate:
    """What is to be known of a cluster for a search now."""
    stock = stock_of(record, now)
    asking = asking_at(record.prices, now)
    state = state_of(record, now, stale_after)
    most = record.spec.max_nodes
    silent_at = record.beat_at + stale_after if record.beat_at is not None else now
    return Candidate(
        id=record.spec.id,
        labels=record.spec.labels,
        is_open=state is ClusterState.READY and (most is None or stock.nodes < most),
        prices=asking.prices,
        record=record,
        stock=stock,
        state=state,
        no_price=asking.why_not,
        since=now,
        until=min(stock.until, asking.until, *([silent_at] if silent_at > now else [])),
    )


class Terms:
    """The part of a need that one cluster can be held against without looking at others, or at who asks.

    The same terms are asked for again and again, so each candidate remembers what came of it.
    """

    def __init__(self, need: Need) -> None:
        self.tests = Selector.parse(need.label_selector).tests
        self.amounts: Amounts = amounts_of(need.resources)
        self.asked = {name: amount for name, amount in nanos_of(need.resources).items() if amount}
        self.horizon = need.horizon_hours
        self.by_headroom = need.strategy is Strategy.MOST_HEADROOM

    def judge(self, one: Candidate) -> Verdict:
        """Empty when it cannot meet them."""
        if not one.is_open:
            return ()
        available, labels = one.stock.available, one.labels
        for name, amount in self.asked.items():  # loops, not all(): they take half the time, ten thousand times
            if available.get(name, -1) < amount:
                return ()
        for test in self.tests:
            if not test(labels):
                return ()
        return *self.prices(one), self.headroom(one) if self.by_headroom else 0.0

    def prices(self, one: Candidate) -> tuple[Decimal | None, Decimal | None]:
        """Per hour, unless it is peered and if it is; None when it tells no price."""
        prices = one.prices
        if prices is None:
            return None, None
        price = hourly(prices, self.amounts)
        return (price + prices.peering_fee / self.horizon if prices.peering_fee else price), price

    def headroom(self, one: Candidate) -> float:
        """The share of the scarcest resource that would be left."""
        least = 1.0
        available, shared = one.stock.available, one.stock.shared
        for name, amount in self.asked.items():
            whole = shared.get(name, 0)
            least = min(least, (available[name] - amount) / whole if whole > 0 else 0.0)
        return max(0.0, least)


class _Wording:
    """A need as the key of its terms."""

    def __init__(self, need: Need) -> None:
        self.need = need
        resources = tuple(sorted(need.resources.items()))
        self._key = (need.label_selector, resources, need.horizon_hours, need.strategy is Strategy.MOST_HEADROOM)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wording) and other._key == self._key


@functools.lru_cache(maxsize=64)
def _terms(wording: _Wording) -> Terms:
    return Terms(wording.need)


def terms_of(need: Need) -> Terms:
    """The terms of a need. The same ones for the same need: candidates know them again."""
    return _terms(_Wording(need))


def verdict_on(one: Candidate, terms: Terms) -> Verdict:
    """Whether it can meet them, and for how much; it remembers that."""
    if len(one.verdicts) >= _REMEMBERED:
        one.verdicts.clear()
    verdict = one.verdicts[terms] = terms.judge(one)
    return verdict
