"""What moto's Auto Scaling lacks: limits, instances that come or go slowly or never, and notes of failed launches."""

from __future__ import annotations

import copy
import threading
import uuid
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from xml.sax.saxutils import escape

from clouds.servers.aws_answers import Answer, error_answer

__all__ = ["Scaling"]

Parameters = dict[str, str]
Forward = Callable[[Parameters, Mapping[str, str]], Answer]
_NAMESPACE: Final = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
_N: Final = f"{{{_NAMESPACE}}}"
_SERVICE: Final = "autoscaling"


class Scaling:
    """Stands before moto for the requests to Auto Scaling; :meth:`answer` is given those that it cares for."""

    ACTIONS: Final = frozenset(
        {
            "DescribeAutoScalingGroups",
            "DescribeScalingActivities",
            "SetDesiredCapacity",
            "TerminateInstanceInAutoScalingGroup",
        }
    )

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._lock = threading.RLock()
        self._held: dict[str, int | None] = {}  # groups that get no instances, and what they desire
        self._why: dict[str, str] = {}  # what is noted then
        self._headers: Mapping[str, str] = {}  # of the last request, by which moto tells what is asked
        self._activities: defaultdict[str, list[str]] = defaultdict(list)
        self._ending: dict[str, tuple[str, ET.Element]] = {}  # instances that end slowly, and their groups
        self.ends_slowly = False
        self.lifecycles: dict[str, str] = {}  # of instances, in place of moto's
        self.extra: dict[str, str] = {}  # XML that is added to the description of a group

    # -- commands ------------------------------------------------------------------------------------------------------

    def hold(self, group: str, why: str = "") -> None:
        """From now on no instance comes; with a reason, each that is asked for is noted as a launch that failed."""
        with self._lock:
            self._held[group], self._why[group] = self._held.get(group), why

    def release(self, group: str) -> None:
        """There is room again: what is desired comes."""
        with self._lock:
            wanted = self._held.pop(group, None)
            if wanted is not None:
                asked = {"Action": "SetDesiredCapacity", "Version": "2011-01-01", "AutoScalingGroupName": group}
                self._forward({**asked, "DesiredCapacity": str(wanted)}, self._headers)

    def note_failure(self, group: str, message: str, *, age: timedelta = timedelta(0)) -> None:
        """A launch failed, so long ago."""
        at = (datetime.now(UTC) - age).isoformat()
        self._activities[group].insert(
            0,
            f"<member><ActivityId>{uuid.uuid4()}</ActivityId><AutoScalingGroupName>{escape(group)}"
            "</AutoScalingGroupName><Description>Launching a new EC2 instance.</Description><Cause>c</Cause>"
            f"<StartTime>{at}</StartTime><StatusCode>Failed</StatusCode><StatusMessage>{escape(message)}"
            "</StatusMessage><Progress>100</Progress></member>",
        )

    def finish(self) -> None:
        """What ends slowly has ended."""
        with self._lock:
            self._ending.clear()
            self.ends_slowly = False

    def clear(self) -> None:
        """Everything is as moto has it."""
        with self._lock:
            self.finish()
            for memory in (self._held, self._why, self._activities, self.lifecycles, self.extra):
                memory.clear()

    # -- requests ------------------------------------------------------------------------------------------------------

    def answer(self, action: str, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        """To one of :attr:`ACTIONS`."""
        with self._lock:
            self._headers = headers
            match action:
                case "DescribeAutoScalingGroups":
                    return self._described(parameters, headers)
                case "DescribeScalingActivities":
                    notes = "".join(self._activities.get(parameters.get("AutoScalingGroupName", ""), ()))
                    return _result(action, f"<Activities>{notes}</Activities>")
                case "SetDesiredCapacity":
                    return self._set(parameters, headers)
                case _:
                    return self._end(parameters, headers)

    def _described(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        answer = self._forward(parameters, headers)
        if not answer.is_fine:
            return answer
        root = ET.fromstring(answer.body)
        for group in _groups(root):
            self._correct(group)
        return Answer(body=ET.tostring(root, encoding="utf-8"))

    def _correct(self, group: ET.Element) -> None:
        name, instances = _text(group, "AutoScalingGroupName"), group.find(f"{_N}Instances")
        held = self._held.get(name)
        if held is not None:
            _set_text(group, "DesiredCapacity", str(held))
        if instances is not None:
            instances.extend(copy.deepcopy(one) for owner, one in self._ending.values() if owner == name)
            for one in instances:
                _set_text(one, "LifecycleState", self.lifecycles.get(_text(one, "InstanceId"), ""))
        if name in self.extra:
            for one in ET.fromstring(f'<x xmlns="{_NAMESPACE}">{self.extra[name]}</x>'):
                for old in group.findall(one.tag):
                    group.remove(old)
                group.append(one)

    def _group(self, headers: Mapping[str, str], version: str, *, name: str = "", holds: str = "") -> ET.Element | None:
        """The group of this name, or that holds this instance, as it is described."""
        asked = {"Action": "DescribeAutoScalingGroups", "Version": version, "MaxRecords": "100"}
        if name:
            asked["AutoScalingGroupNames.member.1"] = name
        root = ET.fromstring(self._described(asked, headers).body)
        return next((one for one in _groups(root) if not holds or _member(one, holds) is not None), None)

    def _set(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        name, wanted = parameters["AutoScalingGroupName"], int(parameters["DesiredCapacity"])
        group = self._group(headers, parameters["Version"], name=name)
        if group is None:
            return _invalid(f"AutoScalingGroup name not found - no AutoScalingGroup '{name}'")
        lowest, highest = int(_text(group, "MinSize")), int(_text(group, "MaxSize"))
        if not lowest <= wanted <= highest:
            what = f"above max value {highest}" if wanted > highest else f"below min value {lowest}"
            return _invalid(f"New SetDesiredCapacity value {wanted} is {what} for the AutoScalingGroup.")
        if name not in self._held:
            return self._forward(parameters, headers)
        for _ in range(max(0, wanted - int(_text(group, "DesiredCapacity"))) if self._why[name] else 0):
            self.note_failure(name, self._why[name])
        self._held[name] = wanted
        return _result("SetDesiredCapacity", "")

    def _end(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        instance_id = parameters["InstanceId"]
        group = self._group(headers, parameters["Version"], holds=instance_id)
        member = _member(group, instance_id) if group is not None else None
        if group is None or member is None:
            return _invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
        name, desired = _text(group, "AutoScalingGroupName"), int(_text(group, "DesiredCapacity"))
        if desired <= int(_text(group, "MinSize")):
            return _invalid("Terminating instance without replacement will violate group's min size constraint.")
        if self.ends_slowly:
            _set_text(member, "LifecycleState", "Terminating")
            self._ending[instance_id] = (name, member)
        if self._held.get(name) is not None:
            self._held[name] = desired - 1
        return self._forward(parameters, headers)


def _groups(root: ET.Element) -> Iterator[ET.Element]:
    found = root.find(f".//{_N}AutoScalingGroups")
    return iter(found if found is not None else ())


def _member(group: ET.Element, instance_id: str) -> ET.Element | None:
    instances = group.find(f"{_N}Instances")
    return next(
        (one for one in (instances if instances is not None else ()) if _text(one, "InstanceId") == instance_id), None
    )


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(f"{_N}{name}", "")


def _set_text(element: ET.Element, name: str, text: str) -> None:
    found = element.find(f"{_N}{name}")
    if found is not None and text:
        found.text = text


def _result(action: str, inner: str) -> Answer:
    text = f"<{action}Result>{inner}</{action}Result><ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata>"
    return Answer(body=f'<{action}Response xmlns="{_NAMESPACE}">{text}</{action}Response>'.encode())


def _invalid(message: str) -> Answer:
    return error_answer(_SERVICE, 400, "ValidationError", message)
