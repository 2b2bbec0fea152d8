"""Defines the value types of the interface between a provider and the autoscaler.

Everything here is a value: frozen, compared by content, safe to share between tasks and threads.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta

from cloudgraft.sdk.errors import ErrorClass, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FAKE_NODE_REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A set of machines of one type that the autoscaler grows and shrinks.

    ``id`` must be non-empty, unique, and the same after a restart: the autoscaler uses it as the key of its state.
    """

    id: str  # a stable name
    min_size: int  # the autoscaler never scales below it
    max_size: int  # the autoscaler never scales above it
    debug: str = ""  # for the autoscaler's log only


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """A node as the autoscaler sends it: without taints, conditions and age.

    Not every node exists. For an instance without a node the autoscaler invents one whose name and provider id are both
    the instance's id (:attr:`is_fake`). For a simulated scale-up it invents one named ``template-node-for-<group>-…``.
    """

    name: str = ""  # `metadata.name` of the node
    provider_id: str = ""  # may be empty on a new node: then match by name
    labels: Mapping[str, str] = field(default_factory=dict)  # `metadata.labels`
    annotations: Mapping[str, str] = field(default_factory=dict)  # `metadata.annotations`

    @property
    def is_fake(self) -> bool:
        """True for a node that the autoscaler invented for an instance without one."""
        return _FAKE_NODE_REASON in self.annotations

    @property
    def fake_reason(self) -> str:
        """Why the autoscaler invented the node: ``unregistered``, ``create-error`` or empty."""
        return self.annotations.get(_FAKE_NODE_REASON, "")


class InstanceState(enum.Enum):
    """The lifecycle states of a machine that the autoscaler knows."""

    UNSPECIFIED = 0  # present, expected to register
    RUNNING = 1  # it exists, and its node has joined or will soon
    CREATING = 2  # requested, or being created; the only state in which an error counts
    DELETING = 3  # it is being deleted, and does not count for the target


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceError:
    """Why an instance could not be created. The autoscaler uses it only while the state is CREATING."""

    code: str  # must not be empty: an empty code means "no error" on the wire
    message: str  # for people: it appears in the autoscaler's log and events
    error_class: int = ErrorClass.OTHER  # OUT_OF_RESOURCES for a quota or a stock-out


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine as the autoscaler lists it. ``id`` equals the ``spec.providerID`` of its node, byte for byte."""

    id: str  # the providerID, or a placeholder of your choice while it is not known
    state: InstanceState = InstanceState.RUNNING  # where it is in its life
    error: InstanceError | None = None  # only with CREATING

    def __post_init__(self) -> None:
        """Refuses an error that the autoscaler would ignore."""
        if self.error is not None and self.state is not InstanceState.CREATING:
            raise InvalidArgumentError(
                f"instance {self.id!r} is {self.state.name.lower()} and has an error; the autoscaler sees one only "
                "of an instance that is being created (R34): give state=InstanceState.CREATING"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A Kubernetes taint; ``effect`` is one of :data:`TAINT_EFFECTS`."""

    key: str  # such as "gpu"
    value: str = ""  # may be empty
    effect: str = "NoSchedule"  # NoSchedule, PreferNoSchedule or NoExecute


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One entry of a node's status conditions."""

    type: str  # such as "Ready"
    status: str  # "True", "False" or "Unknown"
    reason: str = ""  # one word for programs
    message: str = ""  # a sentence for people


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTemplate:
    """A new node of a group as the scheduler will see it, before the first one exists.

    ``allocatable`` needs cpu, memory and pods, and every other resource that pods request; without ``pods`` no pod
    fits. Labels and taints must be exactly those of real nodes. Leave ``name`` and ``provider_id`` empty: the
    autoscaler sets its own.
    """

    labels: Mapping[str, str] = field(default_factory=dict)  # exactly those of real nodes
    annotations: Mapping[str, str] = field(default_factory=dict)  # rarely needed
    taints: Sequence[Taint] = ()  # exactly those of real nodes
    capacity: Mapping[str, Quantity] = field(default_factory=dict)  # all that the machine has
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)  # what pods can use of it
    conditions: Sequence[NodeCondition] = ()  # may stay empty
    name: str = ""  # leave it empty
    provider_id: str = ""  # leave it empty
    unschedulable: bool = False  # True: no pod fits
    # The message this was decoded from, so that encoding keeps unknown fields.
    source: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod, with the fields that its price depends on."""

    name: str = ""  # its name in the pod
    requests: Mapping[str, Quantity] = field(default_factory=dict)  # what it needs
    limits: Mapping[str, Quantity] = field(default_factory=dict)  # the most that it gets
    restart_policy: str = ""  # "Always" on an init container makes it run for the pod's whole life


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod whose price is asked for."""

    name: str = ""  # `metadata.name`
    namespace: str = ""  # `metadata.namespace`
    labels: Mapping[str, str] = field(default_factory=dict)  # `metadata.labels`
    annotations: Mapping[str, str] = field(default_factory=dict)  # `metadata.annotations`
    node_selector: Mapping[str, str] = field(default_factory=dict)  # labels that its node must have
    containers: Sequence[Container] = ()  # run side by side
    init_containers: Sequence[Container] = ()  # run before them, one after the other
    overhead: Mapping[str, Quantity] = field(default_factory=dict)  # of its runtime class, beside its containers
    # The message this was decoded from.
    source: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingOptions:
    """The autoscaler's options for one group. ``None`` means the value of the autoscaler's own flag.

    A provider sets only the options that differ. cloudgraft fills in the rest from the defaults in the request, because
    an incomplete response would set the missing options to zero or crash the autoscaler.
    """

    scale_down_utilization_threshold: float | None = None  # a node that is used less, from 0 to 1, may be removed
    scale_down_gpu_utilization_threshold: float | None = None  # the same for nodes with a GPU
    scale_down_unneeded_time: timedelta | None = None  # how long a node must be unneeded before it is removed
    scale_down_unready_time: timedelta | None = None  # the same for a node that is not ready
    max_node_provision_time: timedelta | None = None  # until the node of a new machine exists
    zero_or_max_node_scaling: bool | None = None  # all of its machines or none
    ignore_daemon_sets_utilization: bool | None = None  # leave DaemonSets out of the utilization
    max_node_startup_time: timedelta | None = None  # until a node is ready; only future releases can receive it
    # Let a group of all or none grow in steps; only future releases can receive it.
    allow_non_atomic_scale_up_to_max: bool | None = None
    # The message this was decoded from, so that encoding keeps unknown fields.
    source: bytes = field(default=b"", repr=False, compare=False)

    def over(self, defaults: AutoscalingOptions) -> AutoscalingOptions:
        """Returns these options, with unset ones taken from ``defaults``."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "source"}
        set_here = {name: value for name, value in own.items() if value is not None}
        return replace(defaults, source=defaults.source or self.source, **set_here)
