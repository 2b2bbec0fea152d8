"""Parses Auto Scaling groups as AWS describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.sdk.types import InstanceState

LAUNCH: Final = "Launch"  # the process that makes instances
_TERMINATING: Final = "Terminating"
_STATES: Final[Mapping[str, InstanceState]] = {
    "Pending": InstanceState.CREATING,
    "Quarantined": InstanceState.CREATING,
    "InService": InstanceState.RUNNING,
    "EnteringStandby": InstanceState.RUNNING,
    "Standby": InstanceState.RUNNING,
    _TERMINATING: InstanceState.DELETING,
    "Terminated": InstanceState.DELETING,
    "Detaching": InstanceState.DELETING,
    "Detached": InstanceState.DELETING,
}
_ASIDE: Final = frozenset({"EnteringStandby", "Standby"})  # not part of the desired capacity
_IN_STOCK: Final = "Warmed"  # of a warm pool: not yet a machine of the group


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An instance of a group."""

    instance_id: str
    zone: str
    lifecycle: str

    @property
    def provider_id(self) -> str:
        """The providerID that AWS's cloud controller writes on the node."""
        return f"aws:///{self.zone}/{self.instance_id}"

    @property
    def state(self) -> InstanceState:
        """The instance's state; an unknown one counts as running."""
        return _STATES.get(self._stage, InstanceState.RUNNING)

    @property
    def is_leaving(self) -> bool:
        """Whether it is leaving the group."""
        return self.state is InstanceState.DELETING

    @property
    def is_aside(self) -> bool:
        """Whether it is in standby, outside the desired capacity."""
        return self._stage in _ASIDE

    @property
    def _stage(self) -> str:
        return self.lifecycle.partition(":")[0]

    def terminated(self) -> Member:
        """Returns the same member in the state of leaving."""
        return Member(instance_id=self.instance_id, zone=self.zone, lifecycle=_TERMINATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The source of a group's instance type."""

    instance_type: str = ""  # as the group itself says
    template: Mapping[str, str] | None = None  # LaunchTemplateId or LaunchTemplateName, and Version
    configuration: str = ""
    by_requirements: bool = False  # AWS chooses among matching types


@dataclass(frozen=True, slots=True, kw_only=True)
class Asg:
    """A group."""

    name: str
    min_size: int
    max_size: int
    desired: int
    members: Sequence[Member]
    zones: Sequence[str]
    tags: Mapping[str, str]
    launch: Launch
    suspended: frozenset[str]
    is_leaving: bool  # it is being deleted
    problem: str = ""  # why it cannot be a node group

    @property
    def living(self) -> int:
        """The number of instances that the desired capacity counts."""
        return sum(not member.is_leaving and not member.is_aside for member in self.members)

    @property
    def aside(self) -> int:
        """The number of instances in standby."""
        return sum(member.is_aside for member in self.members)


def asg_of(raw: Mapping[str, Any]) -> Asg:
    """Parses an entry of a DescribeAutoScalingGroups response."""
    members = (
        Member(
            instance_id=str(one["InstanceId"]),
            zone=str(one["AvailabilityZone"]),
            lifecycle=str(one.get("LifecycleState", "")),
        )
        for one in raw.get("Instances", ())
    )
    return Asg(
        name=str(raw["AutoScalingGroupName"]),
        min_size=int(raw["MinSize"]),
        max_size=int(raw["MaxSize"]),
        desired=int(raw["DesiredCapacity"]),
        members=tuple(member for member in members if not member.lifecycle.startswith(_IN_STOCK)),
        zones=tuple(map(str, raw.get("AvailabilityZones", ()))),
        tags={str(tag["Key"]): str(tag.get("Value", "")) for tag in raw.get("Tags", ())},
        launch=_launch(raw),
        suspended=frozenset(str(one.get("ProcessName", "")) for one in raw.get("SuspendedProcesses", ())),
        is_leaving="delete" in str(raw.get("Status", "")).lower(),
        problem=_problem(raw),
    )


def _launch(raw: Mapping[str, Any]) -> Launch:
    mixed = raw.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    first: Mapping[str, Any] = next(iter(mixed.get("Overrides", ())), {})
    template = (
        first.get("LaunchTemplateSpecification")
        or mixed.get("LaunchTemplateSpecification")
        or raw.get("LaunchTemplate")
    )
    return Launch(
        instance_type=str(first.get("InstanceType", "")),
        template=_reference(template) if template else None,
        configuration=str(raw.get("LaunchConfigurationName", "")),
        by_requirements="InstanceRequirements" in first,
    )


def _reference(template: Mapping[str, Any]) -> dict[str, str]:
    key = "LaunchTemplateId" if template.get("LaunchTemplateId") else "LaunchTemplateName"
    return {key: str(template.get(key, "")), "Version": str(template.get("Version") or "$Default")}


def _problem(raw: Mapping[str, Any]) -> str:
    """Returns why it cannot be a node group. Target and list must agree (R25): one instance must be one unit."""
    unit = str(raw.get("DesiredCapacityType") or "units")
    if unit != "units":
        return f"its desired capacity is counted in {unit} and not in instances"
    overrides = raw.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("Overrides", ())
    if any(str(one.get("WeightedCapacity") or "1") != "1" for one in overrides):
        return "its instance types have weights: give each type a group of its own"
    return ""
