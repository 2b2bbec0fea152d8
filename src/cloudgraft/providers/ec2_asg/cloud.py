"""Sends the requests to AWS, and finds the instance types of groups. Blocks; everything here runs in threads."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from cloudgraft.drivers.ec2.catalog import read_shapes
from cloudgraft.drivers.ec2.session import Clients, pages, parts, read
from cloudgraft.providers.ec2_asg.errors import failure_of, our_errors
from cloudgraft.providers.ec2_asg.options import Ec2AsgOptions
from cloudgraft.providers.ec2_asg.state import Asg, Failure, Launch, asg_of
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError, UnavailableError

# -- instance types of groups ------------------------------------------------------------------------------------------
# Finds the instance type of a group through its launch template, and the resources of that type. Numbered versions of
# launch templates, launch configurations and instance types never change: each is read once. ``$Latest`` and
# ``$Default`` are resolved again after some minutes.

_FOR_EVER: Final = float("inf")
_MOVING: Final = 300.0  # seconds for which $Latest and $Default are cached
_WRONG: Final = 60.0  # seconds until a failure is retried
_AT_ONCE: Final = 50  # launch configurations that one request may name
Key = tuple[str, str]
Found = str | CloudgraftError


class LaunchTypes:
    """Finds the instance types of an account's groups. Not thread-safe."""

    def __init__(self, clients: Clients, region: str) -> None:
        self._clients = clients
        self._region = region
        self._types: dict[Key, tuple[Found, float]] = {}  # and until when it holds
        self._shapes: dict[str, tuple[Shape | CloudgraftError, float]] = {}

    def shapes(self, groups: Collection[Asg], chosen: Mapping[str, str]) -> dict[str, Shape | CloudgraftError]:
        """Returns shapes, or errors, by group name; ``chosen`` are types from the options."""
        self._read_configurations({one.launch.configuration for one in groups if one.launch.configuration})
        types = {one.name: chosen.get(one.name) or self._type(one.launch) for one in groups}
        self._read_shapes({one for one in types.values() if isinstance(one, str)})
        return {name: self._shapes[one][0] if isinstance(one, str) else one for name, one in types.items()}

    def _type(self, launch: Launch) -> Found:
        if launch.instance_type:
            return launch.instance_type
        if launch.by_requirements:
            return PreconditionError(
                "AWS chooses among the instance types that fit: say in overrides which `instanceType` its nodes are to "
                "be taken for"
            )
        if launch.configuration:
            return self._types[("", launch.configuration)][0]
        if launch.template is None:
            return PreconditionError("it has no launch template")
        key = (next(iter(launch.template.values())), launch.template["Version"])
        if not self._holds(key):
            self._types[key] = self._read_template(launch.template)
        return self._types[key][0]

    def _holds(self, key: Key) -> bool:
        return key in self._types and self._types[key][1] > time.monotonic()

    def _read_template(self, template: Mapping[str, str]) -> tuple[Found, float]:
        now, (key, name) = time.monotonic(), next(iter(template.items()))
        version = template["Version"]
        try:
            with our_errors(f"launch template {name}, version {version}"):
                call = self._clients.client().describe_launch_template_versions
                answer = read(call, **{key: name, "Versions": [version]})
        except CloudgraftError as error:
            return error, now + _WRONG
        found: Mapping[str, Any] = next(iter(answer.get("LaunchTemplateVersions", ())), {})
        kind = str(found.get("LaunchTemplateData", {}).get("InstanceType", ""))
        if not kind:
            words = f"the launch template {name}, version {version}, is not there or says no instance type"
            return PreconditionError(words), now + _WRONG
        return kind, _FOR_EVER if version.isdecimal() else now + _MOVING

    def _read_configurations(self, names: Collection[str]) -> None:
        unknown = sorted(name for name in names if not self._holds(("", name)))
        now = time.monotonic()
        for part in parts(unknown, _AT_ONCE):
            found: dict[Key, tuple[Found, float]] = {
                ("", name): (PreconditionError(f"its launch configuration {name} is not there"), now + _WRONG)
                for name in part
            }
            try:
                with our_errors("launch configurations"):
                    call = self._clients.client("autoscaling").describe_launch_configurations
                    for page in pages(call, {"LaunchConfigurationNames": part}):
                        for one in page["LaunchConfigurations"]:
                            found["", str(one["LaunchConfigurationName"])] = (str(one["InstanceType"]), _FOR_EVER)
            except CloudgraftError as error:
                found = {("", name): (error, now + _WRONG) for name in part}
            self._types |= found

    def _read_shapes(self, types: Collection[str]) -> None:
        now = time.monotonic()
        unknown = sorted(one for one in types if one not in self._shapes or self._shapes[one][1] <= now)
        if unknown and not self._asked(unknown):
            for one in unknown:  # one unknown type makes the whole request fail
                self._asked([one])

    def _asked(self, types: Sequence[str]) -> bool:
        now = time.monotonic()
        found: list[Shape] = []
        error: CloudgraftError = InvalidArgumentError(f"there is no instance type {types[0]}")
        try:
            with our_errors("instance types"):
                found = read_shapes(self._clients.client(), types, self._region)
        except CloudgraftError as raised:
            error = raised
        self._shapes |= dict.fromkeys(types, (error, now + _WRONG))
        self._shapes |= {shape.name: (shape, _FOR_EVER) for shape in found}
        return len(found) == len(types)


# -- requests ----------------------------------------------------------------------------------------------------------
# Each request reads or changes only groups that the options select by name or tags.

_PAGE: Final = 100  # groups that one request may name, or bring
_ACTIVITIES: Final = 20  # of one group, the newest
_LAUNCHING: Final = "launch"  # how the description of a launch begins
_SERVICE: Final = "autoscaling"
_ENDED: Final = frozenset({"shutting-down", "terminated"})
_GROUP_TAG: Final = "aws:autoscaling:groupName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The result of one read of all groups."""

    groups: Sequence[Asg]
    shapes: Mapping[str, Shape | CloudgraftError]  # by the group's name
    failures: Mapping[str, Failure | None]  # of the groups whose activities were read
    at: datetime  # by AWS's clock


class AutoScaling:
    """One account in a region."""

    def __init__(self, options: Ec2AsgOptions) -> None:
        """Makes no call and reads no file yet."""
        self._options = options
        self._clients = Clients(options)
        limits = {key: min(getattr(options, key), options.change_timeout) for key in ("timeout", "connect_timeout")}
        self._quick = Clients(dataclasses.replace(options, **limits))  # for calls on which the autoscaler waits
        self._types = LaunchTypes(self._clients, options.region)

    def open(self) -> None:
        """Looks for the credentials."""
        with our_errors("start"):
            self._clients.open()
            self._quick.open()

    def close(self) -> None:
        """Closes the connections."""
        self._clients.close()
        self._quick.close()

    # -- reads ---------------------------------------------------------------------------------------------------------

    def survey(self, waiting: Collection[str]) -> Survey:
        """Reads all groups in one paged pass, and the failed launches of those that wait for instances."""
        with our_errors("groups"):
            found, at = self._discovered()
        chosen = {name: one.instance_type for name, one in self._options.overrides.items() if one.instance_type}
        names = {one.name for one in found}
        return Survey(
            groups=found,
            shapes=self._types.shapes(found, chosen),
            failures={name: self._failure(name) for name in waiting if name in names},
            at=at,
        )

    def describe(self, name: str) -> tuple[Asg | None, datetime]:
        """Reads one group, with the time by AWS's clock; None when there is none that the options select."""
        with our_errors(f"group {name}"):
            answer = self._quick.client(_SERVICE).describe_auto_scaling_groups(AutoScalingGroupNames=[name])
            found = [asg for asg in _groups_of(answer) if self._is_ours(asg)]
        return (found[0] if found else None), _time_of(answer)

    def _discovered(self) -> tuple[list[Asg], datetime]:
        call = self._clients.client(_SERVICE).describe_auto_scaling_groups
        found: dict[str, Asg] = {}
        at = datetime.now(UTC)
        for asked in self._questions():
            for page in pages(call, {**asked, "MaxRecords": _PAGE}):
                at = min(at, _time_of(page)) if found else _time_of(page)
                found |= {asg.name: asg for asg in _groups_of(page) if self._is_ours(asg)}
        return [found[name] for name in sorted(found)], at

    def _questions(self) -> Iterator[Mapping[str, Any]]:
        for names in parts(self._options.groups, _PAGE):
            yield {"AutoScalingGroupNames": names}
        if self._options.tags:
            yield {
                "Filters": [
                    {"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]}
                    for key, value in self._options.tags.items()
                ]
            }

    def _is_ours(self, asg: Asg) -> bool:
        """Checks the selection again: a cloud that ignores a filter must not give us other groups."""
        if asg.is_leaving:
            return False
        wanted = self._options.tags
        is_tagged = all(key in asg.tags and value in ("", asg.tags[key]) for key, value in wanted.items())
        return asg.name in self._options.groups or (bool(wanted) and is_tagged)

    def _failure(self, name: str) -> Failure | None:
        """Returns the newest failed launch. A failure to read it must not fail the whole read."""
        try:
            with our_errors(f"activities of {name}"):
                call = self._clients.client(_SERVICE).describe_scaling_activities
                answer = read(call, AutoScalingGroupName=name, MaxRecords=_ACTIVITIES)
        except CloudgraftError:
            return None
        failed = [
            Failure(one["StartTime"], failure_of(str(one.get("StatusMessage") or one.get("Description", ""))))
            for one in answer.get("Activities", ())
            if one.get("StatusCode") == "Failed" and str(one.get("Description", "")).lower().startswith(_LAUNCHING)
        ]
        return max(failed, key=lambda failure: failure.at, default=None)

    def have_ended(self, group: str, instance_ids: Sequence[str]) -> bool:
        """Returns whether EC2 still lists all of these as terminated, and none in another group."""
        try:
            with our_errors("instances"):
                answer = self._quick.client().describe_instances(InstanceIds=list(instance_ids))
        except CloudgraftError:
            return False  # EC2 no longer lists them, or refuses to tell
        found = [one for reservation in answer.get("Reservations", ()) for one in reservation.get("Instances", ())]
        groups = {tag["Value"] for one in found for tag in one.get("Tags", ()) if tag["Key"] == _GROUP_TAG}
        ended = [one for one in found if one.get("State", {}).get("Name") in _ENDED]
        return len(ended) == len(set(instance_ids)) and groups <= {group}  # tags may disappear first

    # -- changes -------------------------------------------------------------------------------------------------------

    def set_desired(self, name: str, desired: int) -> None:
        """Sets the desired capacity."""
        client = self._quick.client(_SERVICE)  # now: an error in the credential files is not an unknown outcome
        with our_errors(f"desired capacity {desired} of {name}", is_change=True):
            client.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=desired, HonorCooldown=False)

    def terminate(self, instance_id: str) -> None:
        """Terminates an instance and lowers the desired capacity in one step, so that AWS does not replace it."""
        client = self._quick.client(_SERVICE)
        with our_errors(f"end of {instance_id}", is_change=True):
            client.terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=True)


def _groups_of(page: Mapping[str, Any]) -> list[Asg]:
    if "AutoScalingGroups" not in page:
        raise UnavailableError("the answer is not a list of Auto Scaling groups")
    return [asg_of(raw) for raw in page["AutoScalingGroups"]]


def _time_of(answer: Mapping[str, Any]) -> datetime:
    """Returns AWS's time of the response: our clock may be wrong by minutes."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)
