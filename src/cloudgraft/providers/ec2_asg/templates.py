"""Builds node templates, autoscaling options and prices of groups from the tags that AWS users know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from cloudgraft.providers.ec2_asg.options import Ec2AsgOptions, GroupOverrides
from cloudgraft.providers.ec2_asg.state import Asg
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, AutoscalingOptions, NodeRef, NodeTemplate, Pod, Taint

log: Final = logging.getLogger("cloudgraft.drivers")

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_TAGS: Final = "k8s.io/cluster-autoscaler/node-template/"
_WORDS: Final = {"true": True, "false": False}


def node_template(asg: Asg, shape: Shape, options: Ec2AsgOptions, overrides: GroupOverrides) -> NodeTemplate:
    """Builds a template: resources and labels of the type, overridden by tags, then by the overrides."""
    capacity: dict[str, Quantity] = {**shape.capacity, "pods": Quantity(options.pods)}
    capacity |= dict(_read(asg, "resources/", Quantity))
    capacity |= {name: Quantity(value) for name, value in overrides.capacity.items()}
    return NodeTemplate(
        labels=_labels(asg, shape, overrides),
        taints=_taints(asg, overrides),
        capacity=capacity,
        allocatable={name: _left(amount, options.reserved.get(name)) for name, amount in capacity.items()},
    )


def options_of(asg: Asg) -> AutoscalingOptions | None:
    """Returns the options from the group's tags; None when there are none (R73)."""
    found = {}
    for name, (option, read) in _OPTIONS.items():
        for _, value in _read(asg, "autoscaling-options/", read, only=name):
            found[option] = value
    return AutoscalingOptions(**found) if found else None


def _labels(asg: Asg, shape: Shape, overrides: GroupOverrides) -> dict[str, str]:
    labels = {"kubernetes.io/os": "linux", **shape.labels, INSTANCE_TYPE: shape.name}
    if len(asg.zones) == 1:  # with several zones, the next node's zone is unknown
        labels["topology.kubernetes.io/zone"] = asg.zones[0]
    return {**labels, **dict(_read(asg, "label/", str)), **overrides.labels}


def _taints(asg: Asg, overrides: GroupOverrides) -> tuple[Taint, ...]:
    """Returns one taint per key and effect; the overrides win."""
    tagged = [Taint(key=key, value=value, effect=effect) for key, (value, effect) in _read(asg, "taint/", _taint)]
    found = {(taint.key, taint.effect): taint for taint in (*tagged, *overrides.taints)}
    return tuple(found.values())


def _taint(text: str) -> tuple[str, str]:
    value, colon, effect = text.rpartition(":")
    if not colon or effect not in TAINT_EFFECTS:
        raise InvalidArgumentError(f"it must end with a colon and one of {', '.join(TAINT_EFFECTS)}")
    return value, effect


def _switch(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise InvalidArgumentError("it must be true or false")
    return _WORDS[text.lower()]


def _left(amount: Quantity, reserved: str | None) -> Quantity:
    left = amount - Quantity(reserved) if reserved else amount
    return max(left, Quantity(0))


def _read(asg: Asg, prefix: str, read: Callable[[str], Any], only: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of tags with this prefix, by the rest of the key. Logs and skips invalid tags."""
    for tag, text in asg.tags.items():
        name = tag.removeprefix(f"{_TAGS}{prefix}")
        if not name or name == tag or (only and name != only):
            continue
        try:
            yield name, read(text)
        except (InvalidArgumentError, ValueError) as error:
            log.warning(
                "ignoring an invalid tag of an Auto Scaling group",
                extra={"group": asg.name, "tag": tag, "value": text, "error": str(error)},
            )


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "scaledownunneededtime": ("scale_down_unneeded_time", parse_duration),
    "scaledownunreadytime": ("scale_down_unready_time", parse_duration),
    "maxnodeprovisiontime": ("max_node_provision_time", parse_duration),
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", float),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", float),
    "ignoredaemonsetsutilization": ("ignore_daemon_sets_utilization", _switch),
}


# -- prices ------------------------------------------------------------------------------------------------------------

_SHARED: Final = ("cpu", "memory")


def node_price(node: NodeRef, prices: Mapping[str, Decimal], start: datetime, end: datetime) -> float:
    """Returns the price of its type for that period."""
    kind = node.labels.get(INSTANCE_TYPE, "")
    if kind not in prices:
        raise UnsupportedError(f"no price is known for {kind or 'a node without an instance type'}: see `prices`")
    return float(prices[kind]) * _hours(start, end)


def pod_price(
    pod: Pod, prices: Mapping[str, Decimal], shapes: Collection[Shape], start: datetime, end: datetime
) -> float:
    """Returns the lowest price of its share of a machine."""
    wanted = pod_requests(pod)
    shares = [float(prices[shape.name]) * _share(wanted, shape) for shape in shapes if shape.name in prices]
    if not shares:
        raise UnsupportedError("no prices are known: write them under `prices`")
    return min(shares) * _hours(start, end)


def _share(wanted: Mapping[str, Quantity], shape: Shape) -> float:
    return max(float(wanted.get(name, Quantity(0))) / float(shape.capacity[name]) for name in _SHARED)


def _hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600
