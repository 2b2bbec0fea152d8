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
# Credentials and region: the options of everything that calls AWS.

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ARN: Final = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/\S+")
_FORM: Final = "write it like https://ec2.example:8773/"
_SHORTEST_LOAN, _LONGEST_LOAN = timedelta(minutes=15), timedelta(hours=12)  # STS's limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumeRole:
    """A role that is assumed with the base credentials, and assumed again before it expires."""

    role_arn: str  # such as arn:aws:iam::123456789012:role/nodes
    session_name: str = "cloudgraft"  # the session's name in AWS's logs
    external_id: str = ""  # if the role's owner requires one
    duration: timedelta = timedelta(hours=1)  # of one session
    endpoint_url: str = ""  # the address of STS; empty: AWS's own in the region

    def __post_init__(self) -> None:
        """Refuses invalid options."""
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
    session_token_file: Path | None = None  # with its session token; only for temporary keys
    assume_role: AssumeRole | None = None  # a role to assume with these credentials
    endpoint_url: str = ""  # the address of another cloud with EC2's API; empty: AWS's own
    ca_file: Path | None = None  # the CA of its certificate; without it, the public ones
    insecure: bool = False  # true: allows http to another host; anyone on the network can read it
    connect_timeout: timedelta = timedelta(seconds=5)  # to open a connection
    timeout: timedelta = timedelta(seconds=25)  # for the response to one request

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        self.flaws().raise_any()

    def flaws(self) -> Flaws:
        """Returns the validation errors; subclasses add theirs."""
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
    """Checks a URL without repeating it in messages: it may contain a password."""
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
_PAGE_SIZES: Final = range(5, 1001)  # the range of DescribeInstances


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Options(AccountOptions):
    """The instances of an account in a region."""

    # How long a new instance may be missing from the list. AWS names no limit; seconds are usual. Until then an absent
    # instance does not count as gone.
    list_delay: timedelta = timedelta(seconds=30)
    page_size: int = 1000  # instances per page of the list
    shapes: Sequence[str] = ()  # the instance types to offer; empty: all of the current generation
    prices: Mapping[str, Decimal] = field(default_factory=dict)  # per hour, by instance type
    spot_prices: bool = False  # use the spot prices of `shapes` instead of `prices`
    currency: str = "USD"  # of `prices`
    # Who writes aws:///ZONE/ID on the node. AWS's own cloud controller writes the same, where there is one.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def flaws(self) -> Flaws:
        """Returns the validation errors."""
        flaws = AccountOptions.flaws(self)  # super() does not work: a dataclass with slots is a new class
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
        """Returns the traits of EC2."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.TOKEN,
            list_delay=self.list_delay,
            provider_id_by=self.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )
