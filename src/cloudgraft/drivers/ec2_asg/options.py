"""What a configuration file may say about Auto Scaling groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from cloudgraft.drivers.ec2.account import AccountOptions
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint

__all__ = ["Ec2AsgOptions", "GroupOverrides"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverrides:
    """What is to hold for one group instead of what AWS says about it."""

    min_size: int | None = None  # not less than the Auto Scaling group's own
    max_size: int | None = None  # not more than the Auto Scaling group's own
    labels: Mapping[str, str] = field(default_factory=dict)  # of its nodes, beside those that its tags say
    taints: Sequence[Taint] = ()  # likewise
    capacity: Mapping[str, str] = field(default_factory=dict)  # of its nodes: cpu, memory, pods, ephemeral-storage …
    instance_type: str = ""  # what its nodes are taken for; empty: as its launch template says

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        low, high = self.min_size or 0, self.max_size
        if low < 0 or (high is not None and high < low):
            raise InvalidArgumentError("minSize must not be negative, and maxSize not less than minSize")
        if any(taint.effect not in TAINT_EFFECTS or not taint.key for taint in self.taints):
            raise InvalidArgumentError(f"a taint needs a key, and one of {', '.join(TAINT_EFFECTS)} as its effect")
        _check_quantities("capacity", self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2AsgOptions(AccountOptions):
    """The Auto Scaling groups of an account in a region: those of these names, and those with all of these tags."""

    timeout: timedelta = timedelta(seconds=10)  # for the answer to one request; a look takes less than a second
    groups: Sequence[str] = ()  # these by name, whatever their tags
    tags: Mapping[str, str] = field(default_factory=dict)  # that a group must have; an empty value: any value will do
    overrides: Mapping[str, GroupOverrides] = field(default_factory=dict)  # by the group's name
    # How often AWS is asked while nothing happens; while machines come or go, it is asked whenever cloudgraft looks.
    interval: timedelta = timedelta(seconds=10)
    change_timeout: timedelta = timedelta(seconds=2)  # for a request that changes a group: the autoscaler waits
    reserved: Mapping[str, str] = field(default_factory=dict)  # of each node, what pods cannot have
    pods: int = 110  # on each node, where no tag says it
    gpu_label: str = "k8s.amazonaws.com/accelerator"  # by which the autoscaler knows nodes with GPUs
    prices: Mapping[str, Decimal] = field(default_factory=dict)  # of an hour, by instance type

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        AccountOptions.__post_init__(self)  # a dataclass with slots is made anew, which super() does not know
        if not self.groups and not self.tags:
            raise InvalidArgumentError(
                "which groups? Write their names under `groups`, or tags that they have under `tags`"
            )
        if "" in (*self.groups, *self.tags, *self.overrides):
            raise InvalidArgumentError("groups, tags and overrides must not have empty names")
        if self.groups and not self.tags and (strange := sorted(set(self.overrides) - set(self.groups))):
            raise InvalidArgumentError(f"overrides: {strange[0]!r} is not one of `groups`")
        if self.interval < timedelta(0) or self.change_timeout <= timedelta(0):
            raise InvalidArgumentError("interval must not be negative, and changeTimeout must be more than zero")
        if self.pods < 1:
            raise InvalidArgumentError("pods must be at least 1")
        if any(not price.is_finite() or price <= 0 for price in self.prices.values()):
            raise InvalidArgumentError("a price must be a number, and more than zero")
        _check_quantities("reserved", self.reserved)


def _check_quantities(key: str, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        try:
            quantity = Quantity(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{key}.{name}: {error.message}") from None
        if quantity < Quantity(0):
            raise InvalidArgumentError(f"{key}.{name} must not be negative")
