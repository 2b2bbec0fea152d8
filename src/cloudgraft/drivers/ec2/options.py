"""Defines the options and machine settings of the driver ``ec2``, and the account that every AWS client uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from cloudgraft.drivers.ec2.instances import NAME_TAG, check_tags, is_reserved
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url

__all__ = ["USER_DATA_LIMIT", "AccountOptions", "AssumeRole", "Ec2Options", "MachineSettings"]


# -- the machine settings of node groups -------------------------------------------------------------------------------


_TOKENS: Final = ("required", "optional")
SSM: Final = "resolve:ssm:"  # prefix of the path of a parameter with an image id, which EC2 looks up


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """A launch template. Settings of the group override those of the template."""

    id: str = ""  # its id, lt-…; this or the name
    name: str = ""  # its name; this or the id
    version: str = "$Default"  # a number in quotes, "$Latest" or "$Default"

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(bool(self.id) != bool(self.name), (), "needs `id` or `name`, and not both")
        is_version = self.version.isdecimal() or self.version in ("$Latest", "$Default")
        flaws.expect(is_version, "version", 'must be a number in quotes, "$Latest" or "$Default"')
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class RootVolume:
    """The boot disk; it is deleted with the instance."""

    size: int | None = None  # GiB; without it, as the image says
    type: str = ""  # such as gp3; empty: as the image says
    encrypted: bool | None = None  # without it, as the image and the account say
    device: str = ""  # such as /dev/xvda; empty: as the image says, which is asked for

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.size is None or self.size >= 1, "size", "must be at least 1 (GiB)")
        says_something = self.size is not None or self.type or self.encrypted is not None
        flaws.expect(says_something, (), "says nothing: give it size, type or encrypted")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataService:
    """The options of the instance metadata service, which also serves user data."""

    tokens: str = "required"  # `required`: IMDSv2 only; `optional`: version 1 too
    hop_limit: int | None = None  # 2 lets pods without the host's network reach it; without it, the account's default

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.tokens in _TOKENS, "tokens", f"must be one of {', '.join(_TOKENS)}")
        is_limit = self.hop_limit is None or 1 <= self.hop_limit <= 64
        flaws.expect(is_limit, "hopLimit", "must be between 1 and 64")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The instances of one group."""

    shape: str = ""  # the instance type; empty: as the launch template says
    image: str = ""  # an AMI's id, or resolve:ssm: and a parameter's path; empty: as the launch template says
    zone: str = ""  # the availability zone, which `zones` of the group sets; empty: as the subnet says, or AWS chooses
    subnets: Sequence[str] = ()  # ids; of these the ones in the zone, and the next one when one has no address left
    security_groups: Sequence[str] = ()  # ids; empty: as the launch template says, or the default of the VPC
    key_name: str = ""  # of an SSH key that the account has; empty: none
    iam_instance_profile: str = ""  # its name, or its ARN, which is not that of its role; empty: none
    launch_template: LaunchTemplate | None = None  # what the group says itself counts instead of what is in it
    root_volume: RootVolume | None = None  # the disk that it boots from; without it, as the image says
    spot: bool = False  # a spot instance, which is gone when AWS takes it back
    spot_max_price: Decimal | None = None  # at most, in USD per hour; without it the on-demand price, as AWS advises
    public_ip: bool | None = None  # whether it gets a public address; without it, as the subnet says
    # How the metadata service answers; without it IMDSv2 only, or as the launch template says.
    metadata: MetadataService | None = None
    tags: Mapping[str, str] = field(default_factory=dict)  # on instances and their volumes, beside our marks

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        for key, value in {"shape": self.shape, "image": self.image}.items():
            flaws.expect(value or self.launch_template, key, "is needed, unless a launchTemplate has it")
        for key, ids in {"subnets": self.subnets, "securityGroups": self.security_groups}.items():
            flaws.expect("" not in ids, key, "must not have empty ids")
        if self.spot_max_price is not None:
            flaws.expect(self.spot, "spotMaxPrice", "needs `spot: true`")
            is_price = self.spot_max_price.is_finite() and self.spot_max_price > 0
            flaws.expect(is_price, "spotMaxPrice", "must be a number, and more than zero")
        volume = self.root_volume
        is_askable = self.image and not self.image.startswith(SSM)
        needed = "is needed, such as /dev/xvda: it cannot be asked for without the id of an image"
        flaws.expect(volume is None or volume.device or is_askable, ("rootVolume", "device"), needed)
        for key in filter(is_reserved, self.tags):
            flaws.tell("tags", f"{key!r} is not for you to set: {NAME_TAG}, cloudgraft-… and aws:… have their meaning")
        with flaws.at("tags"):
            check_tags(self.tags)
        flaws.raise_any()


# -- the account -------------------------------------------------------------------------------------------------------
# Credentials and region: the options of everything that calls AWS.

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ARN: Final = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/\S+")
_EXAMPLE: Final = "https://ec2.example:8773/"
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
        sts = self.assume_role.endpoint_url if self.assume_role else ""
        for place, url in ((("endpointUrl",), self.endpoint_url), (("assumeRole", "endpointUrl"), sts)):
            with flaws.at(place):
                if url:
                    check_url(url, example=_EXAMPLE, exposed="user data, which holds secrets,", insecure=self.insecure)
        return flaws


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
