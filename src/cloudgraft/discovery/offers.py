"""Which clusters can meet a need, and in what order. Pure: the same clusters, need and moment give the same offers.

A candidate is ready, fits the selector, is not excluded, has enough left, has room for another node and asks no more
than the cap. Its price is that of the shape, plus the peering fee over the horizon where it is not peered yet. The cap
is compared with that price; a weight only changes the order.

Prices in two currencies are never compared: where no currency was named and clusters ask in several, those of the
currency that most of them ask in come first, then the next, by name where as many ask in two. A cap without a
currency is one in the currency of each cluster. Without a valid price a cluster is no candidate when price decides
(strategy cheapest, a cap, a currency that was named); with the other strategies it is, and by preferPeered it comes
behind those that tell one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from typing import Any, Final, NamedTuple

from cloudgraft.discovery.candidates import Candidate, Fitting, terms_of, verdict_on
from cloudgraft.discovery.model import ClusterState, Need, Offer, PriceList, Strategy
from cloudgraft.discovery.prices import EXACT
from cloudgraft.discovery.reservations import UNREADY, lack_of
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["search", "why_not"]

_NOTHING: Final = Decimal(0)
_DIGITS: Final = Context(prec=36)  # a third of a fee has no last digit
_CENTS: Final = Decimal("1e-12")  # what a price is rounded to, for whoever reads it
_PRICED: Final = (Strategy.CHEAPEST, Strategy.PREFER_PEERED)
_MOST: Final = 1000

Row = tuple[Any, str, Candidate, "Decimal | None"]  # what it is ranked by, its id for ties, and its price
Group = tuple[bool, str]  # not peered, where that decides; the currency, where prices do
_ALL: Final[Group] = (False, "")


class _Found(NamedTuple):
    """One that can meet the need. ``rank`` is the price by which it is ranked, in its currency."""

    candidate: Candidate
    price: Decimal | None
    rank: Decimal
    currency: str


def search(candidates: Iterable[Candidate], need: Need) -> list[Offer]:
    """Offers, best first, at most as many as asked for."""
    ask = _Ask(need)
    with localcontext(_DIGITS):
        groups = ask.fitting(candidates)
        best = [ask.found(row) for row in _best(groups, need.limit)]
        number = sum(map(len, groups.values()))
        lowest = _lowest(best)
        return [
            _offer(ask, one, lowest, "" if place else f"the best of {number} by ") for place, one in enumerate(best)
        ]


def _best(groups: Mapping[Group, Sequence[Row]], limit: int) -> list[Row]:
    """Group by group: what is peered first, what tells no price last, else the larger group."""
    best: list[Row] = []
    for group in sorted(groups, key=lambda group: (group[0], not group[1], -len(groups[group]), group[1])):
        best += heapq.nsmallest(limit - len(best), groups[group])
    return best


def why_not(candidates: Iterable[Candidate], need: Need) -> dict[str, str]:
    """Of each cluster that cannot meet the need, the reason."""
    ask = _Ask(need)
    with localcontext(_DIGITS):
        reasons = ((one.id, ask.refusal(one)) for one in candidates)
        return {id_: reason for id_, reason in reasons if reason}


class _Ask:
    """A need, prepared so that to look at one cluster costs little: there may be ten thousand."""

    def __init__(self, need: Need) -> None:
        _check(need)
        self.need = need
        self.terms = terms_of(need)
        self.only = frozenset(need.clusters)
        self.exclude = frozenset(need.exclude)
        self.peered = frozenset(need.peered)
        self.needs_price = need.strategy is Strategy.CHEAPEST or need.price_cap is not None or bool(need.currency)

    def fitting(self, candidates: Iterable[Candidate]) -> dict[Group, list[Row]]:
        """Those that can meet it, by group. :meth:`refusal` must come to the same, in words."""
        terms, exclude, only, peered = self.terms, self.exclude, self.only, self.peered
        found: dict[Group, list[Row]] = defaultdict(list)
        for one in candidates:
            verdict = one.verdicts.get(terms)
            if verdict is None:
                verdict = verdict_on(one, terms)
            if not verdict or one.id in exclude or (only and one.id not in only):
                continue
            price = verdict[1] if one.id in peered else verdict[0]
            if not self._bad_price(one, price):
                group, rank = self._place(one, price, verdict)
                found[group].append((rank, one.id, one, price))
        return found

    def _place(self, one: Candidate, price: Decimal | None, verdict: Fitting) -> tuple[Group, Any]:
        """Its group, and what it is ranked by there: less is better."""
        strategy = self.need.strategy
        if strategy is Strategy.FIRST_FIT:
            return _ALL, 0
        if strategy is Strategy.MOST_HEADROOM:
            return _ALL, -verdict[2]
        is_far = strategy is Strategy.PREFER_PEERED and one.id not in self.peered
        return (is_far, one.prices.currency if one.prices is not None else ""), self.weighted(one, price)

    def weighted(self, one: Candidate, price: Decimal | None) -> Decimal:
        """The price by which it is ranked."""
        weights = self.need.weights
        return (price or _NOTHING) * weights[one.id] if weights and one.id in weights else price or _NOTHING

    def found(self, row: Row) -> _Found:
        """All that is to be told of one."""
        _, _, one, price = row
        return _Found(one, price, self.weighted(one, price), one.prices.currency if one.prices is not None else "")

    def _bad_price(self, one: Candidate, price: Decimal | None) -> str:
        if price is None or one.prices is None:
            return one.no_price if self.needs_price else ""
        need = self.need
        if need.currency and one.prices.currency != need.currency:
            return f"it asks in {one.prices.currency}, not in {need.currency}"
        if need.price_cap is not None and price > need.price_cap:
            return f"it asks {_shown(price)} {one.prices.currency} an hour, above the cap of {_shown(need.price_cap)}"
        return ""

    def refusal(self, one: Candidate) -> str:
        """Why it cannot meet the need, for a person; "" when it can."""
        if self.only and one.id not in self.only:
            return "it is not among the clusters that were asked for"
        if one.id in self.exclude:
            return "it is excluded"
        if one.state is not ClusterState.READY:
            return UNREADY[one.state]
        if not all(test(one.labels) for test in self.terms.tests):
            return "its labels do not fit"
        price = self.terms.prices(one)[one.id in self.peered]
        return lack_of(one.stock, one.record.spec, self.terms.asked) or self._bad_price(one, price)


def _lowest(found: Iterable[_Found]) -> dict[str, Decimal]:
    """Of each currency, the lowest price by which something is ranked."""
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
    """From 0 to 1; of two offers in one currency the one with more comes first. The best price there is scores 1."""
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
        raise InvalidArgumentError("nobody can need less than nothing of a resource")
    if not need.horizon_hours.is_finite() or need.horizon_hours <= 0:
        raise InvalidArgumentError("the hours over which a peering fee is spread must be more than 0")
    if not 1 <= need.limit <= _MOST:
        raise InvalidArgumentError(f"the limit must be from 1 to {_MOST}")
    if any(not weight.is_finite() or weight <= 0 for weight in need.weights.values()):
        raise InvalidArgumentError("the weight of a cluster must be more than 0; 1 leaves its price as it is")
    if need.price_cap is not None and (not need.price_cap.is_finite() or need.price_cap < 0):
        raise InvalidArgumentError("a price cap must be 0 or more")
