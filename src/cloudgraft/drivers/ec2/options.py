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
from cloudgraft.sdk.errors import InvalidArgumentError

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

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        AccountOptions.__post_init__(self)  # a dataclass with slots is made anew, which super() does not know
        if self.list_delay < timedelta(0):
            raise InvalidArgumentError("listDelay must not be negative")
        if self.page_size not in _PAGE_SIZES:
            raise InvalidArgumentError(f"pageSize must be between {_PAGE_SIZES[0]} and {_PAGE_SIZES[-1]}")
        if any(not price.is_finite() or price < 0 for price in self.prices.values()):
            raise InvalidArgumentError("a price must be a number, and not negative")
        if not self.currency:
            raise InvalidArgumentError("currency must not be empty")
        if self.spot_prices and not self.shapes:
            raise InvalidArgumentError("spotPrices needs `shapes`: which instance types are the prices wanted of?")
        if self.spot_prices and self.currency != "USD":
            raise InvalidArgumentError("spotPrices are in USD: leave `currency` out")

    def traits(self) -> DriverTraits:
        """As EC2 is."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.TOKEN,
            list_delay=self.list_delay,
            provider_id_by=self.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )
