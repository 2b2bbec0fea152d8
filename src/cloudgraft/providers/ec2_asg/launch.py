"""What an instance of a group will be: its type, by the group's launch template, and what that type holds.

Numbered versions of launch templates, launch configurations and instance types never change: each is asked for once.
What ``$Latest`` and ``$Default`` mean is asked for again after some minutes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from cloudgraft.drivers.ec2.catalog import read_shapes
from cloudgraft.drivers.ec2.session import Clients, pages, read
from cloudgraft.providers.ec2_asg.errors import told
from cloudgraft.providers.ec2_asg.groups import Asg, Launch
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError

__all__ = ["LaunchTypes"]

_FOR_EVER: Final = float("inf")
_MOVING: Final = 300.0  # seconds for which $Latest and $Default are believed
_WRONG: Final = 60.0  # seconds until something that went wrong is tried again
_AT_ONCE: Final = 50  # launch configurations that one request may name
Key = tuple[str, str]
Found = str | CloudgraftError


class LaunchTypes:
    """The types of an account's groups. Only one thread at a time may use it."""

    def __init__(self, clients: Clients, region: str) -> None:
        self._clients = clients
        self._region = region
        self._types: dict[Key, tuple[Found, float]] = {}  # and until when it holds
        self._shapes: dict[str, tuple[Shape | CloudgraftError, float]] = {}

    def shapes(self, groups: Collection[Asg], chosen: Mapping[str, str]) -> dict[str, Shape | CloudgraftError]:
        """By the group's name, or why it cannot be known; ``chosen`` are types that the options say."""
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
            with told(f"launch template {name}, version {version}"):
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
        for part in _parts(unknown):
            missing = PreconditionError(f"its launch configuration {part[0]} is not there")
            self._types |= {("", name): (missing, now + _WRONG) for name in part}
            try:
                with told("launch configurations"):
                    call = self._clients.client("autoscaling").describe_launch_configurations
                    found = [
                        one
                        for page in pages(call, {"LaunchConfigurationNames": part})
                        for one in page["LaunchConfigurations"]
                    ]
            except CloudgraftError as error:
                self._types |= {("", name): (error, now + _WRONG) for name in part}
                continue
            for one in found:
                self._types[("", str(one["LaunchConfigurationName"]))] = (str(one["InstanceType"]), _FOR_EVER)

    def _read_shapes(self, types: Collection[str]) -> None:
        now = time.monotonic()
        unknown = sorted(one for one in types if one not in self._shapes or self._shapes[one][1] <= now)
        if unknown and not self._asked(unknown):
            for one in unknown:  # one that does not exist spoils the answer for all
                self._asked([one])

    def _asked(self, types: Sequence[str]) -> bool:
        now = time.monotonic()
        found: list[Shape] = []
        error: CloudgraftError = InvalidArgumentError(f"there is no instance type {types[0]}")
        try:
            with told("instance types"):
                found = read_shapes(self._clients.client(), types, self._region)
        except CloudgraftError as raised:
            error = raised
        self._shapes |= dict.fromkeys(types, (error, now + _WRONG))
        self._shapes |= {shape.name: (shape, _FOR_EVER) for shape in found}
        return len(found) == len(types)


def _parts(names: Sequence[str]) -> Iterator[list[str]]:
    return (list(names[start : start + _AT_ONCE]) for start in range(0, len(names), _AT_ONCE))
