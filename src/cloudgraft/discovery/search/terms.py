"""What a search holds clusters against: resources, labels, prices; prepared so that each cluster costs little. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

from cloudgraft.discovery.model import Need, PriceList
from cloudgraft.discovery.search.candidates import Candidate
from cloudgraft.discovery.search.columns import Columns
from cloudgraft.discovery.search.prices import EXACT, Amounts, amounts_of
from cloudgraft.discovery.search.reservations import nanos_of
from cloudgraft.discovery.search.selector import Selector

__all__ = ["ROUGH", "Terms"]

ROUGH: Final = 1e-9  # more than floats can be wrong by
_FINEST: Final = 1e9 * (1 + 1e-12)  # so that a share which floats make a little too small is not the next one down


class Terms:
    """A need, and what clusters cost and have by it. Clusters are given by their places in the columns.

    Prices are compared over the whole horizon, in which a peering fee is paid once: nothing is divided, so a price that
    is just at a cap is not above it by a last digit.
    """

    def __init__(self, need: Need) -> None:
        self.selector = need.label_selector
        self.labels = Selector.parse(need.label_selector)
        self.amounts: Amounts = amounts_of(need.resources)
        self.asked = {name: amount for name, amount in nanos_of(need.resources).items() if amount}
        self.horizon = need.horizon_hours
        self._over_horizon = [(name, EXACT.multiply(amount, self.horizon)) for name, amount in self.amounts if amount]

    def fitting(self, columns: Columns) -> list[int]:
        """Those that are open, have enough and fit the selector, whatever they ask."""
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
        """What a node of that shape costs over the whole horizon, exactly."""
        total = prices.fixed_per_node * self.horizon
        if not peered:
            total += prices.peering_fee
        for name, amount in self._over_horizon:
            if name in prices.unit:
                total += prices.unit[name] * amount
        return total

    def rough_costs(self, columns: Columns, found: Sequence[int], peered: Collection[str]) -> list[float]:
        """The same of many, roughly; nothing for those that tell no price."""
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
        """The share of the scarcest resource that would be left."""
        shared = one.stock.shared
        shares = [
            (one.available[name] - amount) / shared[name] if shared.get(name, 0) > 0 else 0.0
            for name, amount in self.asked.items()
        ]
        return max(0.0, min(shares, default=1.0))

    def by_headroom(self, columns: Columns, found: Sequence[int]) -> list[float]:
        """Ranks of many by what would be left, most first, in billionths: less may be an error of floats."""
        least = [1.0] * len(found)
        for name, exact in self.asked.items():
            left, shared, amount = columns.left(name), columns.shared(name), float(exact)
            least = [
                least if least < (share := (left[place] - amount) / shared[place]) else share
                for least, place in zip(least, found, strict=True)
            ]
        return [-int(share * _FINEST) for share in least]
