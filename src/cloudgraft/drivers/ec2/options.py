"""What a configuration file may say about EC2 as a cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Final

from cloudgraft.drivers.ec2.account import AccountOptions
from cloudgraft.drivers.ec2.settings import MachineSettings
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.flaws import Flaws

__all__ = ["USER_DATA_LIMIT", "Ec2Options", "MachineSettings"]

USER_DATA_LIMIT: Final = 16 * 1024  # bytes, before they are encoded
_PAGE_SIZES: Final = range(5, 1001)  # what DescribeInstances takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Options(AccountOptions):
    """The instances of an account in a region."""

    # How late the list may be. AWS names no limit; seconds are usual. Until then, what is absent is not taken as gone.
    list_delay: timedelta = timedelta(seconds=30)
    page_size: int = 1000  # instances per page of the list
    shapes: Sequence[str] = ()  # the instance types to tell of; empty: all of the current generation
    prices: Mapping[str, Decimal] = field(default_factory=dict)  # what an hour costs, by instance type
    spot_prices: bool = False  # ask for the spot price of `shapes`, which then counts instead of `prices`
    currency: str = "USD"  # that `prices` are in
    # Who writes aws:///ZONE/ID on the node. AWS's own cloud controller writes the same, where there is one.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def flaws(self) -> Flaws:
        """What can never work."""
        flaws = AccountOptions.flaws(self)  # a dataclass with slots is made anew, which super() does not know
        flaws.expect_not_negative(listDelay=self.list_delay)
        is_size = self.page_size in _PAGE_SIZES
        flaws.expect(is_size, "pageSize", f"must be between {_PAGE_SIZES[0]} and {_PAGE_SIZES[-1]}")
        for name, price in self.prices.items():
            is_price = price.is_finite() and price >= 0
            flaws.expect(is_price, ("prices", name), "a price must be a number, and not negative")
        flaws.expect(self.currency, "currency", "must not be empty")
        if self.spot_prices:
            flaws.expect(self.shapes, "spotPrices", "needs `shapes`: which instance types are the prices wanted of?")
            is_dollars = self.currency in ("USD", "")
            flaws.expect(is_dollars, "currency", "spotPrices are in USD: leave `currency` out")
        return flaws

    def traits(self) -> DriverTraits:
        """As EC2 is."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.TOKEN,
            list_delay=self.list_delay,
            provider_id_by=self.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )
