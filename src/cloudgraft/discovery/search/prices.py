"""Selects the price list that applies at a moment, and converts resources to priced units. Pure.

Of several lists that are valid at a moment, the one that began last applies, and of two that began together the later
in the list: so a temporary price can override a permanent one. A cluster whose lists have all ended has no price.

Units are per hour and whole unit: a core, a GPU, a pod; of memory, storage and huge pages per GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from math import inf
from typing import Final

from cloudgraft.discovery.model import PriceList, Resources

# Enough digits for the largest quantity there is.
EXACT: Final = Context(prec=200)
_GIB: Final = Decimal(2**30)
_BY_GIB: Final = ("memory", "ephemeral-storage")

Amounts = Sequence[tuple[str, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The price list of a cluster at a moment; without one ``why_not`` says why. ``until`` is when that may change."""

    prices: PriceList | None
    until: float
    why_not: str = ""


def seconds_of(moment: datetime | None, default: float) -> float:
    """A time in seconds since the epoch; one without an offset counts as UTC."""
    if moment is None:
        return default
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()


def asking_at(lists: Sequence[PriceList], now: float) -> Asking:
    """The list that applies now. A list is valid from its start, inclusive, to its end, exclusive."""
    spans = [(seconds_of(one.valid_from, -inf), seconds_of(one.valid_to, inf), one) for one in lists]
    until = min((edge for begin, end, _ in spans for edge in (begin, end) if edge > now), default=inf)
    valid = [(begin, number) for number, (begin, end, _) in enumerate(spans) if begin <= now < end]
    if valid:
        return Asking(prices=lists[max(valid)[1]], until=until)
    ended = [end for _, end, _ in spans if end <= now]
    if ended:
        why_not = f"its price ended at {_text_of(max(ended))}"
    elif spans:
        why_not = f"its price begins only at {_text_of(min(begin for begin, _, _ in spans))}"
    else:
        why_not = "it has no price"
    return Asking(prices=None, until=until, why_not=why_not)


def amounts_of(resources: Resources) -> Amounts:
    """Resources in the units that prices are for."""
    found = []
    for name, quantity in sorted(resources.items()):
        amount = EXACT.scaleb(Decimal(quantity.nanos), -9)
        is_large = name in _BY_GIB or name.startswith("hugepages-")
        found.append((name, EXACT.divide(amount, _GIB) if is_large else amount))
    return found


def _text_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
