"""Adds up the resources that a pod requests, as the Kubernetes scheduler does."""

from __future__ import annotations

from collections.abc import Mapping

from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Pod

_Resources = Mapping[str, Quantity]


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """Returns the resources that a node must have free for the pod, by name.

    All containers run at once, so their requests add up; init containers with ``restart_policy="Always"`` (sidecars)
    run beside them and are added too. The other init containers run one after the other before that, each beside the
    sidecars started so far. For each resource the moment with the highest need counts. Overhead is added.
    """
    running: dict[str, Quantity] = {}
    for container in pod.containers:
        running = _added(running, container.requests)
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in pod.init_containers:
        now = _added(sidecars, container.requests)
        if container.restart_policy == "Always":
            sidecars = now
            running = _added(running, container.requests)
        starting = _larger(starting, now)
    return _added(_larger(running, starting), pod.overhead)


def _added(one: _Resources, other: _Resources) -> dict[str, Quantity]:
    return {**one, **{name: one[name] + amount if name in one else amount for name, amount in other.items()}}


def _larger(one: _Resources, other: _Resources) -> dict[str, Quantity]:
    return {**one, **{name: max(one[name], amount) if name in one else amount for name, amount in other.items()}}
