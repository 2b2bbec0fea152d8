"""What is known of one cluster at a moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloudgraft.discovery.model import ClusterState, PriceList
from cloudgraft.discovery.search.prices import asking_at
from cloudgraft.discovery.search.reservations import Nanos, Record, Stock, state_of, stock_of

__all__ = ["Candidate", "candidate_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster as it is from one moment on ``until`` another."""

    id: str
    labels: Mapping[str, str]
    is_open: bool  # ready, and with room for another node
    available: Nanos  # of its stock
    prices: PriceList | None
    currency: str  # of its prices; empty when it tells none
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
        record=record,
        stock=stock,
        state=state,
        no_price=asking.why_not,
        since=now,
        until=min(stock.until, asking.until, *(edge for edge in edges if edge > now)),
    )
