"""Implements a complete provider in memory: every author's first example; tests and the demo use it.

It keeps the whole contract of :class:`~cloudgraft.sdk.Provider`, but its machines are entries in a dict. Read it from
top to bottom before you write your own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cloudgraft.sdk import (
    AutoscalingOptions,
    ErrorClass,
    Instance,
    InstanceError,
    InstanceState,
    InvalidArgumentError,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotFoundError,
    Pod,
    Provider,
    Quantity,
    Taint,
    UnsupportedError,
    pod_requests,
)
from cloudgraft.testing.faults import CallLog, recorded

_REMEMBER_GONE = 30 * 60  # seconds; a Node object may outlive its machine that long (R24)


@dataclass(frozen=True, kw_only=True)
class MemoryGroup:
    """One node group and the simulated cloud behind it."""

    id: str
    min_size: int = 0
    max_size: int = 10
    cpu: str = "4"
    memory: str = "16Gi"
    pods: str = "110"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    hourly_price: float | None = None
    stock: int | None = None  # machines the cloud has in all; None for no limit
    boot_seconds: float = 0.0  # from the order to a running machine
    delete_seconds: float = 0.0  # from the deletion to a gone machine
    options: AutoscalingOptions | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """The options of this provider in the configuration file."""

    groups: Sequence[MemoryGroup] = ()


@dataclass(slots=True)
class _Machine:
    id: str
    group: str
    running_at: float
    gone_at: float | None = None  # set once it is being deleted
    error: InstanceError | None = None


class MemoryProvider(Provider):
    """Node groups whose machines exist in memory only."""

    Options = MemoryOptions

    def __init__(self, options: MemoryOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        """A provider with these groups; machines boot and vanish by ``clock``, in seconds."""
        self.log = CallLog()
        self._clock = clock
        self._groups = {group.id: group for group in options.groups}
        self._machines: dict[str, _Machine] = {}  # by id, which is the providerID of the node
        self._members: dict[str, dict[str, _Machine]] = {group: {} for group in self._groups}  # the same, by group
        self._ordered = dict.fromkeys(self._groups, 0)  # machines ever ordered: ids are never used twice
        self._lost = dict.fromkeys(self._groups, 0)  # asked for, but never became a machine

    # -- reading -----------------------------------------------------------------------------------------------------

    @recorded
    async def node_groups(self) -> Sequence[NodeGroup]:
        """All groups, always in the same order."""
        return [_node_group(group) for group in self._groups.values()]

    @recorded
    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Finds the group by provider id, else by name: a node's name is the last part of its machine's id."""
        machine = self._find(node)
        return _node_group(self._groups[machine.group]) if machine else None

    @recorded
    async def target_size(self, group: str) -> int:
        """All machines that are not being deleted, and those that were asked for and never came."""
        return len(self._alive(self._get(group).id)) + self._lost[group]

    @recorded
    async def instances(self, group: str) -> Sequence[Instance]:
        """Every machine that is not gone yet."""
        now = self._clock()
        listed = [machine for machine in self._members[self._get(group).id].values() if not _is_gone(machine, now)]
        return [Instance(id=machine.id, state=_state(machine, now), error=machine.error) for machine in listed]

    @recorded
    async def template(self, group: str) -> NodeTemplate:
        """The template of a new node of this group."""
        wanted = self._get(group)
        resources = {name: Quantity(getattr(wanted, name)) for name in ("cpu", "memory", "pods")}
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", **wanted.labels}
        return NodeTemplate(labels=labels, taints=tuple(wanted.taints), capacity=resources, allocatable=resources)

    @recorded
    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Only the options that the group overrides."""
        return self._get(group).options

    @recorded
    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """The price of the group that the node or the template belongs to (R81)."""
        machine = self._find(node)
        group = self._groups[machine.group] if machine else self._group_of_template(node.name)
        if group is None or group.hourly_price is None:
            raise UnsupportedError(f"no price is known for node {node.name!r}")
        return group.hourly_price * _hours(start, end)

    @recorded
    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """The pod's share of the cheapest machine's cpu."""
        priced = [group for group in self._groups.values() if group.hourly_price is not None]
        if not priced:
            raise UnsupportedError("no group has a price")
        per_cpu = min(float(group.hourly_price or 0) / float(Quantity(group.cpu).value) for group in priced)
        cpu = pod_requests(pod).get("cpu", Quantity(0))
        return per_cpu * float(cpu.value) * _hours(start, end)

    @recorded
    async def gpu_label(self) -> str:
        """No machine here has a GPU."""
        return ""

    @recorded
    async def gpu_types(self) -> Collection[str]:
        """No machine here has a GPU."""
        return ()

    # -- changing ----------------------------------------------------------------------------------------------------

    @recorded
    async def increase_size(self, group: str, delta: int) -> None:
        """Orders machines. Without stock, a failed creation is listed for the autoscaler (R39)."""
        wanted = self._get(group)
        now = self._clock()
        left = delta if wanted.stock is None else max(0, wanted.stock - self._in_stock_use(group))
        for number in range(delta):
            self._ordered[group] += 1
            machine = _Machine(f"memory://{group}/{group}-{self._ordered[group]}", group, now + wanted.boot_seconds)
            if number >= left:
                machine.error = InstanceError(
                    code="OutOfStock",
                    message=f"the cloud has no more machines for {group}",
                    error_class=ErrorClass.OUT_OF_RESOURCES,
                )
            self._machines[machine.id] = self._members[group][machine.id] = machine

    @recorded
    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes all or none; machines already gone or being deleted are left alone (R52, R55, R56)."""
        wanted = self._get(group)
        found = [(node, self._find(node)) for node in nodes]
        for node, machine in found:
            if machine is None or machine.group != group:
                raise InvalidArgumentError(f"node {node.name or node.provider_id!r} is not in group {group}")
        now = self._clock()
        for _, machine in found:
            if machine is not None and machine.gone_at is None:
                machine.gone_at = now if machine.error else now + wanted.delete_seconds

    @recorded
    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Lowers the target only by requests that never became a machine (R59, R62)."""
        self._lost[self._get(group).id] = max(0, self._lost[group] + delta)

    @recorded
    async def refresh(self) -> None:
        """Forgets machines that have been gone for so long that no node can be left of them."""
        limit = self._clock() - _REMEMBER_GONE
        for machine in [m for m in self._machines.values() if m.gone_at is not None and m.gone_at <= limit]:
            del self._machines[machine.id], self._members[machine.group][machine.id]

    @recorded
    async def cleanup(self) -> None:
        """Nothing to clean up."""

    # -- for tests ---------------------------------------------------------------------------------------------------

    def lose(self, group: str, count: int = 1) -> None:
        """Pretends that ``count`` machines were asked for and never came: target without instances."""
        self._lost[group] += count

    def fail(self, instance: str, error: InstanceError) -> None:
        """Pretends that the creation of a machine failed."""
        machine = self._machines[instance]
        machine.error, machine.running_at = error, float("inf")

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _get(self, group: str) -> MemoryGroup:
        try:
            return self._groups[group]
        except KeyError:
            raise NotFoundError(f"there is no node group {group!r}") from None

    def _alive(self, group: str) -> list[_Machine]:
        return [machine for machine in self._members[group].values() if machine.gone_at is None]

    def _in_stock_use(self, group: str) -> int:
        now = self._clock()
        return sum(machine.error is None and not _is_gone(machine, now) for machine in self._members[group].values())

    def _find(self, node: NodeRef) -> _Machine | None:
        if node.provider_id:
            return self._machines.get(node.provider_id)
        group = node.name.rpartition("-")[0]
        return self._machines.get(f"memory://{group}/{node.name}") or self._machines.get(node.name)

    def _group_of_template(self, name: str) -> MemoryGroup | None:
        rest = name.removeprefix("template-node-for-")
        matching = [group for group in self._groups.values() if rest.startswith(f"{group.id}-")]
        return max(matching, key=lambda group: len(group.id), default=None)


def _node_group(group: MemoryGroup) -> NodeGroup:
    return NodeGroup(
        id=group.id,
        min_size=group.min_size,
        max_size=group.max_size,
        debug=f"{group.id} ({group.min_size}..{group.max_size}, in memory)",
    )


def _is_gone(machine: _Machine, now: float) -> bool:
    return machine.gone_at is not None and machine.gone_at <= now


def _state(machine: _Machine, now: float) -> InstanceState:
    if machine.gone_at is not None:
        return InstanceState.DELETING
    if machine.error is not None or machine.running_at > now:
        return InstanceState.CREATING
    return InstanceState.RUNNING


def _hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600
