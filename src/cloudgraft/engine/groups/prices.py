"""Computes prices of groups, nodes and pods. Pure, and exact until the last step, because the wire carries a double.

A pod is priced by its requests, at one reference price for all groups, because the autoscaler compares the price of
nodes with that of the pods that would run on them. The reference comes from the groups' own prices: the cheapest way
to buy a core, a gibibyte and a GPU among them. A core is assumed to cost as much as 7.5 GiB of memory, which is about
what public clouds charge. So the pods that fill a node of the cheapest group cost what that node costs, and all other
nodes are measured by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.sdk.driver import Price
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

_GIB = 2**30
_CORE_IN_GIB = Fraction(15, 2)
_LEAST = 1e-9  # R84: the autoscaler divides by prices, so no price is zero


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePrice:
    """The price of an hour of a core, of a gibibyte of memory and of one GPU of each kind."""

    core: Fraction
    gib: Fraction
    gpus: Mapping[str, Fraction] = field(default_factory=dict)  # by resource name


def group_price(declared: Money | None, shape: str, prices: Iterable[Price] = ()) -> Money | None:
    """A group's price per hour: the configured one, else the driver's price of the shape, else None."""
    if declared is not None:
        return declared
    found = next((price for price in prices if price.shape == shape), None)
    return Money(amount=found.hourly, currency=found.currency) if found and found.hourly > 0 else None


def common_currency(prices: Mapping[str, Money]) -> str:
    """The single currency of all these prices, which are keyed by their owner; empty when there are none.

    Raises InvalidArgumentError when there is more than one: the autoscaler would compare the bare numbers (R84).
    """
    owners: dict[str, str] = {}
    for owner, price in prices.items():
        owners.setdefault(price.currency, owner)
    if len(owners) > 1:
        found = ", ".join(f"{currency} ({owner})" for currency, owner in owners.items())
        raise InvalidArgumentError(
            f"prices are in more than one currency: {found}; give these groups a price in one currency"
        )
    return next(iter(owners), "")


def node_price(hourly: Decimal, start: datetime, end: datetime) -> float:
    """The price of a node in that period."""
    return _float(Fraction(hourly) * _hours(start, end))


def pod_price(requests: Mapping[str, Quantity], start: datetime, end: datetime, reference: ReferencePrice) -> float:
    """The price of a pod's requests (see :func:`cloudgraft.sdk.pod_requests`) in that period at the reference price."""
    asked = {name: amount.value for name, amount in requests.items()}
    per_unit = {"cpu": reference.core, "memory": reference.gib / _GIB, **reference.gpus}
    hourly = sum((asked[name] * price for name, price in per_unit.items() if name in asked), Fraction(0))
    return _float(hourly * _hours(start, end))


def reference_price(groups: Iterable[GroupSpec]) -> ReferencePrice | None:
    """The reference price among these groups; None when none of them has a price.

    Groups without GPUs set the price of cores and memory. The rest of the price of a group with GPUs is the price of
    its GPUs, but at least half of the group's price. Where all groups have GPUs, the other half is for cores and
    memory.
    """
    offers = [_Offer.of(group, group.price) for group in groups if group.price is not None]
    priced = [offer for offer in offers if offer.weight > 0]
    if not priced:
        return None
    plain = [offer.hourly / offer.weight for offer in priced if not offer.gpus]
    gib = min(plain or [offer.hourly / 2 / offer.weight for offer in priced])
    gpus: dict[str, Fraction] = {}
    for offer in priced:
        rest = max(offer.hourly - gib * offer.weight, offer.hourly / 2)
        for name, count in offer.gpus.items():
            each = rest / len(offer.gpus) / count
            gpus[name] = min(gpus.get(name, each), each)
    return ReferencePrice(core=gib * _CORE_IN_GIB, gib=gib, gpus=gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The capacity of one node that pods pay for: its price, its cores and memory in gibibytes' worth, its GPUs."""

    hourly: Fraction
    weight: Fraction
    gpus: Mapping[str, Fraction]

    @classmethod
    def of(cls, group: GroupSpec, price: Money) -> _Offer:
        amounts = {name: amount.value for name, amount in group.template.allocatable.items()}
        nothing = Fraction(0)
        return cls(
            hourly=Fraction(price.amount),
            weight=amounts.get("cpu", nothing) * _CORE_IN_GIB + amounts.get("memory", nothing) / _GIB,
            gpus={name: count for name, count in amounts.items() if "gpu" in name and count > 0},
        )


def _hours(start: datetime, end: datetime) -> Fraction:
    return Fraction((end - start) // timedelta(microseconds=1), 3_600_000_000)


def _float(amount: Fraction) -> float:
    return max(float(amount), _LEAST)
