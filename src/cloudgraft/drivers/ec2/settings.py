"""Defines the ``machine:`` section of node groups in EC2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from cloudgraft.drivers.ec2.instances import NAME_TAG, check_tags, is_reserved
from cloudgraft.sdk.flaws import Flaws

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
