"""What a node group may say about its instances: its ``machine:`` section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from cloudgraft.drivers.ec2.marks import NAME_TAG, check_tags, is_reserved
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["LaunchTemplate", "MachineSettings", "MetadataService", "RootVolume"]

_TOKENS: Final = ("required", "optional")
SSM: Final = "resolve:ssm:"  # before the path of a parameter that holds the id of an image; EC2 looks it up


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """A launch template. What the group says itself counts instead of what the template says."""

    id: str = ""  # its id, lt-…; this or the name
    name: str = ""  # its name; this or the id
    version: str = "$Default"  # a number in quotes, "$Latest" or "$Default"

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if bool(self.id) == bool(self.name):
            raise InvalidArgumentError("launchTemplate needs `id` or `name`, and not both")
        if not self.version.isdecimal() and self.version not in ("$Latest", "$Default"):
            raise InvalidArgumentError('launchTemplate.version must be a number in quotes, "$Latest" or "$Default"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RootVolume:
    """The disk that the instance boots from; it goes with the instance."""

    size: int | None = None  # GiB; without it, as the image says
    type: str = ""  # such as gp3; empty: as the image says
    encrypted: bool | None = None  # without it, as the image and the account say
    device: str = ""  # such as /dev/xvda; empty: as the image says, which is asked for

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if self.size is not None and self.size < 1:
            raise InvalidArgumentError("rootVolume.size must be at least 1 (GiB)")
        if self.size is None and not self.type and self.encrypted is None:
            raise InvalidArgumentError("rootVolume says nothing: give it size, type or encrypted")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataService:
    """How the metadata service answers to the instance; user data can be read there."""

    tokens: str = "required"  # `required`: IMDSv2 only; `optional`: version 1 too
    hop_limit: int | None = None  # 2 lets pods without the host's network reach it; without it, as the account says

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if self.tokens not in _TOKENS:
            raise InvalidArgumentError(f"metadata.tokens must be one of {', '.join(_TOKENS)}")
        if self.hop_limit is not None and not 1 <= self.hop_limit <= 64:
            raise InvalidArgumentError("metadata.hopLimit must be between 1 and 64")


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
        """Refuses what can never work."""
        if self.launch_template is None and not (self.shape and self.image):
            raise InvalidArgumentError("shape and image are needed, unless a launchTemplate has them")
        if "" in (*self.subnets, *self.security_groups):
            raise InvalidArgumentError("subnets and securityGroups must not have empty ids")
        if self.spot_max_price is not None and not (self.spot and self.spot_max_price.is_finite()):
            raise InvalidArgumentError("spotMaxPrice is a number, and needs `spot: true`")
        if self.spot_max_price is not None and self.spot_max_price <= 0:
            raise InvalidArgumentError("spotMaxPrice must be more than zero")
        volume = self.root_volume
        if volume is not None and not volume.device and (not self.image or self.image.startswith(SSM)):
            raise InvalidArgumentError(
                "rootVolume needs `device`, such as /dev/xvda: it cannot be asked for without the id of an image"
            )
        if reserved := [key for key in self.tags if is_reserved(key)]:
            raise InvalidArgumentError(
                f"tags: {reserved[0]!r} is not for you to set: {NAME_TAG}, cloudgraft-… and aws:… have their meaning"
            )
        check_tags(self.tags)
