"""What machines and pods cost, by the prices in the options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

from cloudgraft.providers.ec2_asg.templates import INSTANCE_TYPE
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import UnsupportedError
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeRef, Pod

__all__ = ["node_price", "pod_price"]

_SHARED: Final = ("cpu", "memory")


def node_price(node: NodeRef, prices: Mapping[str, Decimal], start: datetime, end: datetime) -> float:
    """The price of its type for that time."""
    kind = node.labels.get(INSTANCE_TYPE, "")
    if kind not in prices:
        raise UnsupportedError(f"no price is known for {kind or 'a node without an instance type'}: see `prices`")
    return float(prices[kind]) * _hours(start, end)


def pod_price(
    pod: Pod, prices: Mapping[str, Decimal], shapes: Collection[Shape], start: datetime, end: datetime
) -> float:
    """The least that its share of a machine costs."""
    wanted = pod_requests(pod)
    shares = [float(prices[shape.name]) * _share(wanted, shape) for shape in shapes if shape.name in prices]
    if not shares:
        raise UnsupportedError("no prices are known: write them under `prices`")
    return min(shares) * _hours(start, end)


def _share(wanted: Mapping[str, Quantity], shape: Shape) -> float:
    return max(float(wanted.get(name, Quantity(0))) / float(shape.capacity[name]) for name in _SHARED)


def _hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600
