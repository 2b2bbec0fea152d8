"""Builds shapes and prices from the declared sizes and from live offers.

The last known answer is reused when discovery is away, or when a cluster is full and so makes no offer: the price of
a running node does not end because there is no second one. A cluster that is silent or cordoned, or whose price has
ended, gets no price: the autoscaler would go on choosing it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from cloudgraft.discovery.model import Cluster, Market, Offer, Resources
from cloudgraft.liqo.options import LiqoOptions, MachineSettings
from cloudgraft.liqo.placement import need_for
from cloudgraft.liqo.shapes import ShapeName, all_shapes, is_full, parse_shape
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

log = logging.getLogger("cloudgraft.liqo")
_AT_ONCE = 8  # concurrent searches
_MOST = 1000  # offers of one search, the most that discovery returns
_AWAY = (UnavailableError, DeadlineError)


class OfferedShapes:
    """The shapes of one cloud of remote clusters, and their prices."""

    def __init__(self, market: Market, options: LiqoOptions, used: Callable[[], Awaitable[Collection[str]]]) -> None:
        """``used`` returns the clusters in which we have a slice."""
        self._market = market
        self._options = options
        self._sizes = options.amounts()
        self._clusters: Sequence[Cluster] | None = None
        self._shapes: dict[str, Shape] = {}
        self._prices: dict[str, Price] = {}
        self._last: dict[str, Price] = {}  # last price of each shape, also of those that have none now
        self._used_by_us = used
        self._used: Collection[str] | None = None

    def everything(self, cluster: str) -> Resources | None:
        """The total that the autoscaler got for a cluster; None when it got none."""
        shape = self._shapes.get(f"all@{cluster}")
        return None if shape is None else shape.capacity

    async def shapes(self) -> Sequence[Shape]:
        """Every shape; raises UnavailableError only when discovery was never reached."""
        try:
            self._clusters = await self._market.clusters()
        except _AWAY as error:
            if self._clusters is None:
                raise UnavailableError(f"the clusters are not known yet: {error.message}") from error
            log.info("discovery is away: using the last known shapes", extra={"error": error.message})
        try:
            self._used = await self._used_by_us()
        except CloudgraftError as error:
            log.info("cannot read our reservations: %s", error.message)
        found = all_shapes(self._sizes, self._clusters, self._options.clusters, used=self._used)
        self._shapes = {shape.name: shape for shape in found}
        return found

    async def prices(self) -> Sequence[Price]:
        """The price of each shape that has or had an offer; for a size, that of the best candidate."""
        shapes = self._shapes or {shape.name: shape for shape in await self.shapes()}
        try:
            found = await self._read(shapes)
        except _AWAY as error:
            if not self._prices:
                raise UnavailableError(f"prices are not known yet: {error.message}") from error
            log.info("discovery is away: using the last known prices", extra={"error": error.message})
            found = self._prices
        else:
            self._last = {name: price for name, price in {**self._last, **found}.items() if name in shapes}
            found = {**{name: price for name, price in self._last.items() if self._is_full(shapes[name])}, **found}
        self._prices = _in_one_currency({name: price for name, price in found.items() if name in shapes})
        return list(self._prices.values())

    def _is_full(self, shape: Shape) -> bool:
        """Whether a cluster would offer it, but has no more left."""
        only = parse_shape(shape.name, self._sizes).cluster
        asked = [one for one in self._clusters or () if only in ("", one.spec.id)]
        return any(is_full(one, shape.capacity) for one in asked)

    async def _read(self, shapes: Mapping[str, Shape]) -> dict[str, Price]:
        names = [parse_shape(name, self._sizes) for name in shapes]
        wanted: list[tuple[ShapeName, Sequence[str]]] = [
            (one, (one.cluster,) if one.is_all else ()) for one in names if one.is_all or not one.cluster
        ]
        if self._options.clusters:  # they may be beyond the best thousand
            wanted += [(one, self._options.clusters) for one in names if not one.cluster]
        room = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: ShapeName, clusters: Sequence[str]) -> Sequence[Offer]:
            settings = MachineSettings(shape=str(name))
            need = need_for(shapes[str(name)].capacity, name, settings, self._options, peered=())
            async with room:
                return await self._market.search(replace(need, clusters=clusters, limit=_MOST))

        answers = await asyncio.gather(*(ask(name, clusters) for name, clusters in wanted))
        found: dict[str, Price] = {}
        for (name, _), offers in zip(wanted, answers, strict=True):
            for offer in offers:
                own = str(ShapeName(size=name.size, cluster=offer.cluster))
                for shape in (str(name), own):
                    if shape in shapes and shape not in found and offer.price_per_hour is not None:
                        found[shape] = Price(shape=shape, hourly=offer.price_per_hour, currency=offer.currency)
        return found


def _in_one_currency(prices: dict[str, Price]) -> dict[str, Price]:
    """Keeps only the most common currency, because the autoscaler compares bare numbers (R84)."""
    counted = Counter(price.currency for price in prices.values())
    if len(counted) < 2:
        return prices
    kept = max(sorted(counted), key=lambda currency: counted[currency])
    log.warning("prices are in %s: using only those in %s; set `currency`", ", ".join(sorted(counted)), kept)
    return {name: price for name, price in prices.items() if price.currency == kept}
