"""Finds the clusters that meet a need, and ranks them. Pure: same clusters, need and moment, same offers.

A candidate is ready, matches the selector, is not excluded, has enough left, has room for another node and costs no
more than the cap. Its price is that of the shape, plus the peering fee over the horizon where it is not peered yet. The
cap is compared with that price; a weight only changes the rank.

Prices in two currencies are never compared. If no currency is named and clusters use several, those in the most common
currency come first, then the next, with ties by name. A cap without a currency applies in the currency of each cluster.
Without a valid price a cluster is no candidate when price decides (strategy cheapest, a cap, a named currency). With
the other strategies it is one, and preferPeered ranks it behind those with a price.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from itertools import compress
from operator import attrgetter
from typing import Final, NamedTuple

from cloudgraft.discovery.model import ClusterState, Need, Offer, PriceList, Strategy
from cloudgraft.discovery.search.candidates import Candidate, Columns
from cloudgraft.discovery.search.prices import EXACT, Amounts, amounts_of
from cloudgraft.discovery.search.reservations import UNREADY, lack_of, nanos_of
from cloudgraft.discovery.search.selector import Selector
from cloudgraft.sdk.errors import InvalidArgumentError

# -- Terms of a search -------------------------------------------------------------------------------------------------
# Prepared once, so that each cluster costs little.


ROUGH: Final = 1e-9  # above the error of floats
_FINEST: Final = 1e9 * (1 + 1e-12)  # so that a share that floats make slightly too small is not rounded down


class Terms:
    """A need, with each cluster's cost and headroom for it. Clusters are given by their positions in the columns.

    Compares prices over the whole horizon, with a peering fee once. Nothing is divided, so rounding never puts
    a price that equals the cap above it.
    """

    def __init__(self, need: Need) -> None:
        self.selector = need.label_selector
        self.labels = Selector.parse(need.label_selector)
        self.amounts: Amounts = amounts_of(need.resources)
        self.asked = {name: amount for name, amount in nanos_of(need.resources).items() if amount}
        self.horizon = need.horizon_hours
        self._over_horizon = [(name, EXACT.multiply(amount, self.horizon)) for name, amount in self.amounts if amount]

    def fitting(self, columns: Columns) -> list[int]:
        """Those that are open, have enough and match the selector, at any price."""
        found = [place for place, is_open in enumerate(columns.is_open) if is_open]
        candidates = columns.candidates
        for name, amount in self.asked.items():
            left, hardly, surely = columns.left(name), amount * (1 - ROUGH), amount * (1 + ROUGH)
            found = [
                place
                for place in found
                if left[place] >= surely
                or (left[place] >= hardly and candidates[place].available.get(name, -1) >= amount)
            ]
        if self.labels.tests:
            fits = columns.fits(self.selector)
            found = [place for place in found if fits[place]]
        return found

    def cost(self, prices: PriceList, *, peered: bool) -> Decimal:
        """The exact cost of a node of that shape over the whole horizon."""
        total = prices.fixed_per_node * self.horizon
        if not peered:
            total += prices.peering_fee
        for name, amount in self._over_horizon:
            if name in prices.unit:
                total += prices.unit[name] * amount
        return total

    def rough_costs(self, columns: Columns, found: Sequence[int], peered: Collection[str]) -> list[float]:
        """The same for many, roughly; omits those without a price."""
        hours, per_node, fee = float(self.horizon), columns.per_node, columns.peering_fee
        costs = [per_node[place] * hours + fee[place] for place in found]
        if peered:
            ids = columns.candidates
            costs = [
                per_node[place] * hours if ids[place].id in peered else cost
                for cost, place in zip(costs, found, strict=True)
            ]
        for name, exact in self._over_horizon:
            unit, amount = columns.unit(name), float(exact)
            costs = [cost + unit[place] * amount for cost, place in zip(costs, found, strict=True)]
        return costs

    def headroom(self, one: Candidate) -> float:
        """The remaining share of the scarcest resource."""
        shared = one.stock.shared
        shares = [
            (one.available[name] - amount) / shared[name] if shared.get(name, 0) > 0 else 0.0
            for name, amount in self.asked.items()
        ]
        return max(0.0, min(shares, default=1.0))

    def by_headroom(self, columns: Columns, found: Sequence[int]) -> list[float]:
        """Ranks many by headroom, most first, in billionths: a smaller difference may be an error of floats."""
        least = [1.0] * len(found)
        for name, exact in self.asked.items():
            left, shared, amount = columns.left(name), columns.shared(name), float(exact)
            least = [
                least if least < (share := (left[place] - amount) / shared[place]) else share
                for least, place in zip(least, found, strict=True)
            ]
        return [-int(share * _FINEST) for share in least]


# -- The search --------------------------------------------------------------------------------------------------------


_NOTHING: Final = Decimal(0)
_DIGITS: Final = Context(prec=36)  # a third of a fee has infinitely many digits
_CENTS: Final = Decimal("1e-12")  # prices are rounded to this for people
_PRICED: Final = (Strategy.CHEAPEST, Strategy.PREFER_PEERED)
_MOST: Final = 1000


Group = tuple[bool, str]  # not peered, where that decides; the currency, where prices decide
_ALL: Final[Group] = (False, "")


class _Found(NamedTuple):
    """A cluster that can meet the need. ``rank`` is its ranking price, in its currency."""

    candidate: Candidate
    price: Decimal | None
    rank: Decimal
    currency: str


class _Rated(NamedTuple):
    """Clusters by position, with their ranking value: less is better. Prices are rough."""

    ranks: list[float]
    places: list[int]


def search(clusters: Columns | Iterable[Candidate], need: Need) -> list[Offer]:
    """Offers, best first, up to the limit."""
    ask = _Ask(need, clusters if isinstance(clusters, Columns) else Columns(clusters))
    with localcontext(_DIGITS):
        groups = ask.grouped(ask.fitting())
        best: list[_Found] = []
        # Group by group: peered first, without a price last, else the larger group first.
        for group in sorted(groups, key=lambda group: (group[0], not group[1], -len(groups[group].ranks), group[1])):
            best += ask.best(groups[group], need.limit - len(best))
        number = sum(len(group.ranks) for group in groups.values())
        lowest = _lowest(best)
        return [
            _offer(ask, one, lowest, "" if place else f"the best of {number} by ") for place, one in enumerate(best)
        ]


def why_not(candidates: Iterable[Candidate], need: Need) -> dict[str, str]:
    """The reason for each cluster that cannot meet the need."""
    ask = _Ask(need, Columns())
    with localcontext(_DIGITS):
        reasons = ((one.id, ask.refusal(one)) for one in candidates)
        return {id_: reason for id_, reason in reasons if reason}


class _Ask:
    """A need and its caller's context."""

    def __init__(self, need: Need, columns: Columns) -> None:
        _check(need)
        self.need = need
        self.columns = columns
        self.terms = Terms(need)
        self.only = frozenset(need.clusters)
        self.exclude = frozenset(need.exclude)
        self.peered = frozenset(need.peered)
        self.needs_price = need.strategy is Strategy.CHEAPEST or need.price_cap is not None or bool(need.currency)
        self._cap = None if need.price_cap is None else EXACT.multiply(need.price_cap, need.horizon_hours)

    def fitting(self) -> _Rated:
        """Those that can meet it, with costs where they matter. :meth:`refusal` must reach the same result."""
        found, columns = self.terms.fitting(self.columns), self.columns
        if self.only:
            found = [place for place in found if columns.candidates[place].id in self.only]
        if self.exclude:
            found = [place for place in found if columns.candidates[place].id not in self.exclude]
        if currency := self.need.currency:
            found = [place for place in found if columns.currencies[place] == currency]
        elif self.needs_price:
            found = [place for place in found if columns.currencies[place]]
        if self._cap is None and self.need.strategy not in _PRICED:
            return _Rated([], found)
        rated = _Rated(self.terms.rough_costs(columns, found, self.peered), found)
        return rated if self._cap is None else self._below_cap(rated, self._cap)

    def _below_cap(self, rated: _Rated, cap: Decimal) -> _Rated:
        """Compares exactly only those near the cap."""
        surely, hardly = float(cap) * (1 - ROUGH), float(cap) * (1 + ROUGH)
        good = [
            cost < surely or (cost <= hardly and self._cost(self.columns.candidates[place]) <= cap)
            for cost, place in zip(*rated, strict=True)
        ]
        return _Rated(list(compress(rated.ranks, good)), list(compress(rated.places, good)))

    def _cost(self, one: Candidate) -> Decimal:
        return _NOTHING if one.prices is None else self.terms.cost(one.prices, peered=one.id in self.peered)

    def grouped(self, priced: _Rated) -> Mapping[Group, _Rated]:
        """By group, with their ranking values."""
        strategy, weights = self.need.strategy, self.need.weights
        (costs, found), candidates = priced, self.columns.candidates
        if not found:
            return {}
        if strategy is Strategy.FIRST_FIT:
            return {_ALL: _Rated([0.0] * len(found), found)}
        if strategy is Strategy.MOST_HEADROOM:
            return {_ALL: _Rated(self.terms.by_headroom(self.columns, found), found)}
        if weights:
            factors = {id_: float(weight) for id_, weight in weights.items()}
            costs = [cost * factors.get(candidates[place].id, 1.0) for cost, place in zip(costs, found, strict=True)]
        by_peering, peered, currencies = strategy is Strategy.PREFER_PEERED, self.peered, self.columns.currencies
        groups: dict[Group, _Rated] = defaultdict(lambda: _Rated([], []))
        for cost, place in zip(costs, found, strict=True):
            group = groups[by_peering and candidates[place].id not in peered, currencies[place]]
            group.ranks.append(cost)
            group.places.append(place)
        return groups

    def best(self, rated: _Rated, limit: int) -> list[_Found]:
        """The best of one group, ties by id."""
        if limit <= 0:
            return []
        candidates, edge = self.columns.candidates, heapq.nsmallest(limit, rated.ranks)[-1]
        if self.need.strategy in _PRICED:  # ranked roughly so far: rank those that may be among the best exactly
            edge += max(abs(edge), 1.0) * ROUGH
            near = [candidates[place] for rank, place in zip(*rated, strict=True) if rank <= edge]
            rows = heapq.nsmallest(limit, [(self._rank(one), one.id, one) for one in near])
            return [self._found(one) for _, _, one in rows]
        better = sorted(
            (rank, candidates[place].id, candidates[place]) for rank, place in zip(*rated, strict=True) if rank < edge
        )
        tied = (candidates[place] for rank, place in zip(*rated, strict=True) if rank == edge)  # may be all of them
        last = heapq.nsmallest(limit - len(better), tied, key=attrgetter("id"))
        return [self._found(one) for one in (*(row[2] for row in better), *last)]

    def _rank(self, one: Candidate) -> Decimal:
        """The exact ranking price over the horizon."""
        weights = self.need.weights
        return self._cost(one) * weights[one.id] if weights and one.id in weights else self._cost(one)

    def _found(self, one: Candidate) -> _Found:
        if one.prices is None:
            return _Found(one, None, _NOTHING, "")
        price = self._cost(one) / self.terms.horizon
        return _Found(one, price, price * self.need.weights.get(one.id, 1), one.currency)

    def refusal(self, one: Candidate) -> str:
        """Why it cannot meet the need, for a person; "" when it can."""
        if self.only and one.id not in self.only:
            return "it is not among the clusters that were asked for"
        if one.id in self.exclude:
            return "it is excluded"
        if one.state is not ClusterState.READY:
            return UNREADY[one.state]
        if not self.terms.labels.matches(one.labels):
            return "its labels do not fit"
        return lack_of(one.stock, one.record.spec, self.terms.asked) or self._bad_price(one)

    def _bad_price(self, one: Candidate) -> str:
        if one.prices is None:
            return one.no_price if self.needs_price else ""
        need, currency = self.need, one.prices.currency
        if need.currency and currency != need.currency:
            return f"it asks in {currency}, not in {need.currency}"
        cost = self._cost(one)
        if need.price_cap is not None and self._cap is not None and cost > self._cap:
            asked, cap = _shown(cost / self.terms.horizon), _shown(need.price_cap)
            return f"it asks {asked} {currency} an hour, above the cap of {cap}"
        return ""


def _lowest(found: Iterable[_Found]) -> dict[str, Decimal]:
    """The lowest ranking price of each currency."""
    lowest: dict[str, Decimal] = {}
    for one in found:
        lowest[one.currency] = min(lowest.get(one.currency, one.rank), one.rank)
    return lowest


def _offer(ask: _Ask, one: _Found, lowest: Mapping[str, Decimal], praise: str) -> Offer:
    candidate, spec = one.candidate, one.candidate.record.spec
    headroom = ask.terms.headroom(candidate)
    return Offer(
        cluster=candidate.id,
        price_per_hour=None if one.price is None else _rounded(one.price),
        currency=one.currency,
        peered=candidate.id in ask.peered,
        headroom=headroom,
        score=_score(ask, one, lowest, headroom),
        reasons=tuple(_reasons(ask, one, headroom, praise)),
        resource_slice_class=spec.resource_slice_class,
        network=spec.network,
    )


def _score(ask: _Ask, one: _Found, lowest: Mapping[str, Decimal], headroom: float) -> float:
    """From 0 to 1, higher is better within one currency. The best price scores 1."""
    if ask.need.strategy is Strategy.FIRST_FIT:
        return 1.0
    if ask.need.strategy is Strategy.MOST_HEADROOM:
        return headroom
    share = 0.0
    if one.price is not None:
        share = float(lowest[one.currency] / one.rank) if one.rank else 1.0
    if ask.need.strategy is Strategy.CHEAPEST:
        return share
    return (share + (one.candidate.id in ask.peered)) / 2


def _reasons(ask: _Ask, one: _Found, headroom: float, praise: str) -> Iterable[str]:
    candidate, strategy = one.candidate, ask.need.strategy
    is_peered = candidate.id in ask.peered
    if praise:
        yield f"{praise}{strategy.value}"
    if one.price is None or candidate.prices is None:
        yield candidate.no_price
    else:
        yield f"{_shown(one.price)} {candidate.prices.currency} an hour" + _composed(ask, candidate.prices, is_peered)
    weight = ask.need.weights.get(candidate.id)
    if weight is not None and one.price is not None and strategy in _PRICED:
        yield f"ranked as {_shown(one.rank)}, by its weight of {_shown(weight)}"
    yield "peered already" if is_peered else "not peered yet"
    yield f"{headroom:.0%} of its scarcest resource would be left"


def _composed(ask: _Ask, prices: PriceList, is_peered: bool) -> str:  # noqa: FBT001 - of the module's own
    parts = [f"{_shown(prices.fixed_per_node)} per node"] if prices.fixed_per_node else []
    parts += [
        f"{name} {_shown(prices.unit[name] * amount)}" for name, amount in ask.terms.amounts if prices.unit.get(name)
    ]
    if prices.peering_fee and not is_peered:
        parts.append(f"peering {_shown(prices.peering_fee)} over {_shown(ask.need.horizon_hours)} h")
    return f": {', '.join(parts)}" if parts else ""


def _rounded(price: Decimal) -> Decimal:
    return EXACT.quantize(price, _CENTS).normalize(EXACT) + 0


def _shown(price: Decimal) -> str:
    return format(round(price, 6).normalize(EXACT), "f")


def _check(need: Need) -> None:
    if not need.resources:
        raise InvalidArgumentError("say which resources are needed, such as cpu and memory")
    if any(quantity.value < 0 for quantity in need.resources.values()):
        raise InvalidArgumentError("a need cannot be below 0")
    if not need.horizon_hours.is_finite() or need.horizon_hours <= 0:
        raise InvalidArgumentError("the hours over which a peering fee is spread must be more than 0")
    if not 1 <= need.limit <= _MOST:
        raise InvalidArgumentError(f"the limit must be from 1 to {_MOST}")
    if any(not weight.is_finite() or weight <= 0 for weight in need.weights.values()):
        raise InvalidArgumentError("the weight of a cluster must be more than 0; 1 leaves its price as it is")
    if need.price_cap is not None and (not need.price_cap.is_finite() or need.price_cap < 0):
        raise InvalidArgumentError("a price cap must be 0 or more")
