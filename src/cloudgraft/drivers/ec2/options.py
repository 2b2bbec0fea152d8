"""Defines the options of the driver ``ec2``, and of the AWS account that every AWS client uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.drivers.ec2.settings import MachineSettings
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import is_loopback_host

__all__ = ["USER_DATA_LIMIT", "AccountOptions", "AssumeRole", "Ec2Options", "MachineSettings"]


# -- the account -------------------------------------------------------------------------------------------------------
# Who calls, and where: the options that everything which calls AWS has in common.

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ARN: Final = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/\S+")
_FORM: Final = "write it like https://ec2.example:8773/"
_SHORTEST_LOAN, _LONGEST_LOAN = timedelta(minutes=15), timedelta(hours=12)  # what STS takes


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumeRole:
    """A role that is taken on with the credentials at hand, and taken on anew before it ends."""

    role_arn: str  # such as arn:aws:iam::123456789012:role/nodes
    session_name: str = "cloudgraft"  # by which AWS's logs tell who it was
    external_id: str = ""  # what the role's owner asks for, if anything
    duration: timedelta = timedelta(hours=1)  # for how long it is taken on at a time
    endpoint_url: str = ""  # the address of STS; empty: AWS's own in the region

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        flaws = Flaws()
        is_arn = _ARN.fullmatch(self.role_arn)
        flaws.expect(is_arn, "roleArn", "must be the ARN of a role, like arn:aws:iam::123456789012:role/nodes")
        is_name = re.fullmatch(r"[\w+=,.@-]{2,64}", self.session_name, re.ASCII)
        flaws.expect(is_name, "sessionName", "must be 2 to 64 letters, digits, or one of _+=,.@-")
        flaws.expect(_SHORTEST_LOAN <= self.duration <= _LONGEST_LOAN, "duration", "must be between 15m and 12h")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """An account in a region. Without keys or a profile, AWS's usual chain of credentials is followed."""

    region: str  # such as eu-central-1
    profile: str = ""  # a profile of ~/.aws/config or ~/.aws/credentials; empty: the usual chain
    access_key_id_file: Path | None = None  # with the id of a key; read again when it changes
    secret_access_key_file: Path | None = None  # with the secret of that key; read again when it changes
    session_token_file: Path | None = None  # with its token; only for a key that is lent
    assume_role: AssumeRole | None = None  # a role that is taken on with whatever credentials there are
    endpoint_url: str = ""  # the address of another cloud that speaks EC2; empty: AWS's own
    ca_file: Path | None = None  # with the certificate of who signed its own; without it, a public authority
    insecure: bool = False  # yes: http to another host is fine, though everybody on the way can read it
    connect_timeout: timedelta = timedelta(seconds=5)  # until AWS answers at all
    timeout: timedelta = timedelta(seconds=25)  # for the answer to one request

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        self.flaws().raise_any()

    def flaws(self) -> Flaws:
        """What can never work; who has more options adds to it."""
        flaws = Flaws()
        flaws.expect(_REGION.fullmatch(self.region), "region", "must be the name of a region, such as eu-central-1")
        has_key, has_secret = self.access_key_id_file is not None, self.secret_access_key_file is not None
        flaws.expect(has_key == has_secret, "accessKeyIdFile", "goes together with secretAccessKeyFile: give both")
        is_lent = self.session_token_file is not None
        flaws.expect(has_key or not is_lent, "sessionTokenFile", "needs accessKeyIdFile and secretAccessKeyFile")
        is_one_way = not (self.profile and has_key)
        flaws.expect(is_one_way, "profile", "and accessKeyIdFile are two ways to say who calls: remove one")
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout)
        with flaws.at("endpointUrl"):
            _check_url(self.endpoint_url, insecure=self.insecure)
        with flaws.at(("assumeRole", "endpointUrl")):
            _check_url(self.assume_role.endpoint_url if self.assume_role else "", insecure=self.insecure)
        return flaws


def _check_url(url: str, *, insecure: bool) -> None:
    """Without repeating it: somebody may have put a password into it."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidArgumentError(f"is not an address; {_FORM}") from None
    if not is_fine or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgumentError(f"is not an address; {_FORM}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidArgumentError(f"must be without credentials, query and fragment; {_FORM}")
    if parts.scheme == "http" and not insecure and not is_loopback_host(parts.hostname or ""):
        raise InvalidArgumentError(
            "is http to another host: user data, which holds secrets, would be readable on the way. Use https, "
            "or say `insecure: true` if that is really what you want"
        )


# -- the cloud ---------------------------------------------------------------------------------------------------------

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
