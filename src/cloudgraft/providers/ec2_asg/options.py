"""Defines the options of the provider ``ec2-asg``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from cloudgraft.drivers.ec2.options import AccountOptions
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import check_amounts
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverrides:
    """Values for one group that override those of AWS."""

    min_size: int | None = None  # not less than the Auto Scaling group's own
    max_size: int | None = None  # not more than the Auto Scaling group's own
    labels: Mapping[str, str] = field(default_factory=dict)  # of its nodes, beside those that its tags say
    taints: Sequence[Taint] = ()  # likewise
    capacity: Mapping[str, str] = field(default_factory=dict)  # of its nodes: cpu, memory, pods, ephemeral-storage …
    instance_type: str = ""  # the assumed type of its nodes; empty: that of its launch template

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        low, high = self.min_size or 0, self.max_size
        flaws.expect(low >= 0, "minSize", "must not be negative")
        flaws.expect(high is None or high >= max(low, 0), "maxSize", "must not be negative, nor less than minSize")
        for index, taint in enumerate(self.taints):
            is_taint = taint.effect in TAINT_EFFECTS and taint.key
            needed = f"a taint needs a key, and one of {', '.join(TAINT_EFFECTS)} as its effect"
            flaws.expect(is_taint, ("taints", index), needed)
        check_amounts(flaws, "capacity", self.capacity)
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2AsgOptions(AccountOptions):
    """The Auto Scaling groups of an account in a region: those of these names, and those with all of these tags."""

    timeout: timedelta = timedelta(seconds=10)  # for the answer to one request; a look takes less than a second
    groups: Sequence[str] = ()  # groups by name, whatever their tags
    tags: Mapping[str, str] = field(default_factory=dict)  # that a group must have; an empty value matches any
    overrides: Mapping[str, GroupOverrides] = field(default_factory=dict)  # by the group's name
    # How often AWS is polled while nothing changes; while instances start or stop, at every refresh.
    interval: timedelta = timedelta(seconds=10)
    change_timeout: timedelta = timedelta(seconds=2)  # for a request that changes a group: the autoscaler waits
    reserved: Mapping[str, str] = field(default_factory=dict)  # resources of each node that pods cannot use
    pods: int = 110  # on each node, where no tag says it
    gpu_label: str = "k8s.amazonaws.com/accelerator"  # by which the autoscaler knows nodes with GPUs
    prices: Mapping[str, Decimal] = field(default_factory=dict)  # of an hour, by instance type

    def flaws(self) -> Flaws:
        """Returns the validation errors."""
        flaws = AccountOptions.flaws(self)  # super() does not work: a dataclass with slots is a new class
        is_said = self.groups or self.tags
        flaws.expect(is_said, "groups", "which groups? Write their names here, or tags that they have under `tags`")
        for key, names in {"groups": self.groups, "tags": self.tags, "overrides": self.overrides}.items():
            flaws.expect("" not in names, key, "must not have empty names")
        if self.groups and not self.tags:
            for foreign in sorted(set(self.overrides) - {*self.groups, ""}):
                flaws.tell("overrides", f"{foreign!r} is not one of `groups`")
        flaws.expect_not_negative(interval=self.interval)
        flaws.expect_positive(changeTimeout=self.change_timeout)
        flaws.expect(self.pods >= 1, "pods", "must be at least 1")
        for name, price in self.prices.items():
            is_price = price.is_finite() and price > 0
            flaws.expect(is_price, ("prices", name), "a price must be a number, and more than zero")
        check_amounts(flaws, "reserved", self.reserved)
        return flaws
