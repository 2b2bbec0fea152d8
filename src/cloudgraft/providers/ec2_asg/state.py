"""Parses Auto Scaling groups, and keeps their state between two reads, with placeholders for missing instances."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceError, InstanceState, NodeGroup, NodeTemplate

# -- groups as AWS describes them --------------------------------------------------------------------------------------


_LAUNCH: Final = "Launch"  # the process that creates instances
_STATES: Final[Mapping[str, InstanceState]] = {
    "Pending": InstanceState.CREATING,
    "Quarantined": InstanceState.CREATING,
    "InService": InstanceState.RUNNING,
    "EnteringStandby": InstanceState.RUNNING,
    "Standby": InstanceState.RUNNING,
    "Terminating": InstanceState.DELETING,
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
    provider_id: str  # as AWS's cloud controller writes it on the node
    state: InstanceState
    is_aside: bool = False  # in standby, outside the desired capacity

    @property
    def is_leaving(self) -> bool:
        """Whether it is leaving the group."""
        return self.state is InstanceState.DELETING

    def terminated(self) -> Member:
        """Returns the same member in the state of leaving."""
        return dataclasses.replace(self, state=InstanceState.DELETING, is_aside=False)


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
    def launch_suspended(self) -> str:
        """Why the group launches no instances; empty when it does."""
        if _LAUNCH not in self.suspended:
            return ""
        return f"the process {_LAUNCH} of the Auto Scaling group {self.name} is suspended: resume it"

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
    return Asg(
        name=str(raw["AutoScalingGroupName"]),
        min_size=int(raw["MinSize"]),
        max_size=int(raw["MaxSize"]),
        desired=int(raw["DesiredCapacity"]),
        members=tuple(
            _member(one)
            for one in raw.get("Instances", ())
            if not str(one.get("LifecycleState", "")).startswith(_IN_STOCK)
        ),
        zones=tuple(map(str, raw.get("AvailabilityZones", ()))),
        tags={str(tag["Key"]): str(tag.get("Value", "")) for tag in raw.get("Tags", ())},
        launch=_launch(raw),
        suspended=frozenset(str(one.get("ProcessName", "")) for one in raw.get("SuspendedProcesses", ())),
        is_leaving="delete" in str(raw.get("Status", "")).lower(),
        problem=_problem(raw),
    )


def _member(raw: Mapping[str, Any]) -> Member:
    stage = str(raw.get("LifecycleState", "")).partition(":")[0]
    return Member(
        instance_id=str(raw["InstanceId"]),
        provider_id=f"aws:///{raw['AvailabilityZone']}/{raw['InstanceId']}",
        state=_STATES.get(stage, InstanceState.RUNNING),
        is_aside=stage in _ASIDE,
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


# -- placeholders ------------------------------------------------------------------------------------------------------
# For each instance that AWS has not created yet, the autoscaler sees a placeholder.

_MARK = "/i-placeholder-"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A future instance. ``since`` is by AWS's clock."""

    provider_id: str
    since: datetime


class Waiting:
    """The placeholders of one group, the oldest first.

    A new instance replaces the oldest, whose id stays an alias of it for ever (law 5). Numbers continue from the
    highest used one: an id never means two instances while this program runs. After a restart the same gap gets the
    same numbers.
    """

    def __init__(self, region: str, group: str) -> None:
        self._prefix = f"aws:///{region}{_MARK}{quote(group, safe='')}-"
        self._last = 0
        self.list: list[Placeholder] = []
        self.aliases: dict[str, str] = {}  # replaced placeholder -> the instance's id

    def fit(self, missing: int, living: int, arrived: Sequence[str], since: datetime) -> None:
        """Adjusts their number to ``missing``, after these instances have ``arrived``."""
        for instance_id in arrived:
            if self.list:
                self.aliases[self.list.pop(0).provider_id] = instance_id
        del self.list[max(0, missing) :]  # the desired capacity was lowered by hand: drop the newest
        while len(self.list) < missing:
            self._last = max(self._last, living + len(self.list)) + 1
            self.list.append(Placeholder(f"{self._prefix}{self._last}", since))

    def remove(self, provider_ids: Sequence[str]) -> None:
        """Removes placeholders whose instances will not come."""
        self.list = [one for one in self.list if one.provider_id not in provider_ids]

    def forget(self, instance_ids: Sequence[str]) -> None:
        """Forgets the aliases of these instances, which are gone."""
        self.aliases = {key: value for key, value in self.aliases.items() if value not in instance_ids}


def group_of_placeholder(provider_id: str) -> str:
    """Returns the group of a placeholder by its id; empty for any other id."""
    _, mark, rest = provider_id.partition(_MARK)
    name, _, number = rest.rpartition("-")
    return unquote(name) if mark and number.isdecimal() else ""


# -- groups as the autoscaler sees them --------------------------------------------------------------------------------
# AWS's desired capacity is the truth. Three things are added to it, all of which a restart may lose:
#
# - which placeholder became which instance;
# - recent changes, since a description may be older than the change;
# - placeholders that the autoscaler deleted while the Auto Scaling group was at its own minimum, which AWS enforces.
#   They are *given up*: AWS continues to try, and if an instance comes after all, it counts again (R38).

_LAG: Final = 20.0  # seconds for which a description may be older than a change of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTime:
    """The time of a read: by our monotonic clock, and by AWS's."""

    at: float
    aws: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that failed."""

    at: datetime
    error: InstanceError


class Group:
    """One group. Use it from the event loop's thread only."""

    def __init__(self, asg: Asg, sizes: tuple[int, int], read_time: ReadTime, *, region: str, since: datetime) -> None:
        """``since`` is the earliest time at which the missing instances may have been requested."""
        self.asg = asg
        self.min_size, self.max_size = sizes
        self.template: NodeTemplate | CloudgraftError | None = None
        self.options: AutoscalingOptions | None = None
        self.failure: Failure | None = None
        self.revision = 0  # counts the changes: data read before one is outdated
        self.seen = read_time
        self.given_up = 0
        self.waiting = Waiting(region, asg.name)
        self._replaced: set[int] = set()  # desired capacities that our changes replaced
        self._replaced_until = 0.0  # until when a description may still show them
        self._terminated: dict[str, float] = {}  # instances, until when a description may still call them alive
        self._fit((), since)

    # -- what the autoscaler sees --------------------------------------------------------------------------------------

    @property
    def node_group(self) -> NodeGroup:
        """Returns the group with the sizes that the autoscaler may use; with AWS's if the overrides do not fit.

        Such a group must be listed too, so that its error shows.
        """
        if not self.fits:
            return NodeGroup(id=self.asg.name, min_size=self.asg.min_size, max_size=self.asg.max_size)
        zones = ", ".join(self.asg.zones)
        return NodeGroup(
            id=self.asg.name,
            min_size=self.min_size,
            max_size=self.max_size,
            debug=f"Auto Scaling group {self.asg.name} ({self.min_size}..{self.max_size}, {zones})",
        )

    @property
    def fits(self) -> bool:
        """Whether the overrides fit to the sizes of the Auto Scaling group."""
        return self.min_size <= self.max_size

    @property
    def target(self) -> int:
        """The target size: all but instances that are being deleted (R25)."""
        return self.asg.desired - self.given_up + self.asg.aside

    @property
    def is_busy(self) -> bool:
        """Whether instances are starting or stopping."""
        return bool(self.waiting.list) or any(m.state is not InstanceState.RUNNING for m in self.asg.members)

    def instances(self) -> list[Instance]:
        """Returns instances and placeholders; those have an error if a launch failed since they were requested."""
        there = [Instance(id=member.provider_id, state=member.state) for member in self.asg.members]
        expected = [
            Instance(id=one.provider_id, state=InstanceState.CREATING, error=self._error(one.since))
            for one in self.waiting.list
        ]
        return [*there, *expected]

    def check(self) -> None:
        """Raises when this cannot be a node group."""
        if self.asg.problem:
            raise PreconditionError(f"the Auto Scaling group {self.asg.name} cannot be used: {self.asg.problem}")
        if not self.fits:
            raise PreconditionError(
                f"the Auto Scaling group {self.asg.name} may have {self.asg.min_size} to {self.asg.max_size} "
                "instances, and minSize and maxSize of its overrides do not fit to that"
            )

    def _error(self, since: datetime) -> InstanceError | None:
        if self.asg.launch_suspended:
            return InstanceError(code=PreconditionError.slug, message=self.asg.launch_suspended)
        return self.failure.error if self.failure and self.failure.at >= since else None

    # -- what AWS shows ------------------------------------------------------------------------------------------------

    def observe(self, asg: Asg, sizes: tuple[int, int], read_time: ReadTime) -> list[Member]:
        """Takes AWS's current description; returns the instances that are gone."""
        known = {member.instance_id: member for member in self.asg.members}
        self._terminated = {one: until for one, until in self._terminated.items() if until > read_time.at}
        members = [m.terminated() if m.instance_id in self._terminated else m for m in asg.members]
        desired = asg.desired
        if read_time.at < self._replaced_until and desired in self._replaced:
            desired = self.asg.desired
        else:
            self._replaced = set()
        self.asg = dataclasses.replace(asg, members=tuple(members), desired=desired)
        self.min_size, self.max_size = sizes
        self.seen = read_time
        present = {member.instance_id for member in members}
        gone = [member for member in known.values() if member.instance_id not in present]
        self.waiting.forget([member.instance_id for member in gone])
        arrived = [m.instance_id for m in members if m.instance_id not in known and not (m.is_leaving or m.is_aside)]
        self._fit(arrived, read_time.aws)
        return gone

    def desired_was_set(self, desired: int, wanted: int, read_time: ReadTime) -> None:
        """Records a desired capacity that AWS accepted; only ``wanted`` of it is shown."""
        self._remember(desired, read_time)
        self.given_up = desired - wanted
        self._fit((), read_time.aws)

    def was_terminated(self, instance_id: str, read_time: ReadTime) -> None:
        """Records an accepted termination, which lowered the desired capacity by one."""
        self._terminated[instance_id] = read_time.at + _LAG
        members = [m.terminated() if m.instance_id == instance_id else m for m in self.asg.members]
        self._remember(self.asg.desired - 1, read_time)
        self.asg = dataclasses.replace(self.asg, members=tuple(members))
        self._fit((), read_time.aws)

    def _remember(self, desired: int, read_time: ReadTime) -> None:
        if desired != self.asg.desired:
            self._replaced = (self._replaced | {self.asg.desired}) - {desired}
            self._replaced_until = read_time.at + _LAG
        self.asg = dataclasses.replace(self.asg, desired=desired)
        self.revision += 1

    def _fit(self, arrived: Sequence[str], since: datetime) -> None:
        living = self.asg.living
        self.given_up = max(0, min(self.given_up, self.asg.desired - living))
        self.waiting.fit(self.asg.desired - living - self.given_up, living, arrived, since)
