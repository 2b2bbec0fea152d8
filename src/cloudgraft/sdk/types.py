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

    id: str
    min_size: int
    max_size: int
    debug: str = ""  # for the autoscaler's log only


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """A node as the autoscaler sends it: without taints, conditions and age.

    Not every node exists. For an instance without a node the autoscaler invents one whose name and provider id are both
    the instance's id (:attr:`is_fake`). For a simulated scale-up it invents one named ``template-node-for-<group>-…``.
    """

    name: str = ""
    provider_id: str = ""  # may be empty on a new node: then match by name
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

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
    RUNNING = 1
    CREATING = 2
    DELETING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceError:
    """Why an instance could not be created. The autoscaler uses it only while the state is CREATING."""

    code: str  # must not be empty: an empty code means "no error" on the wire
    message: str
    error_class: int = ErrorClass.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine as the autoscaler lists it. ``id`` equals the ``spec.providerID`` of its node, byte for byte."""

    id: str
    state: InstanceState = InstanceState.RUNNING
    error: InstanceError | None = None

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

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One entry of a node's status conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTemplate:
    """A new node of a group as the scheduler will see it, before the first one exists.

    ``allocatable`` needs cpu, memory and pods, and every other resource that pods request; without ``pods`` no pod
    fits. Labels and taints must be exactly those of real nodes. Leave ``name`` and ``provider_id`` empty: the
    autoscaler sets its own.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    conditions: Sequence[NodeCondition] = ()
    name: str = ""
    provider_id: str = ""
    unschedulable: bool = False
    # The message this was decoded from, so that encoding keeps unknown fields.
    source: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod, with the fields that its price depends on."""

    name: str = ""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    restart_policy: str = ""  # "Always" on an init container makes it run for the pod's whole life


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod whose price is asked for."""

    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: Mapping[str, Quantity] = field(default_factory=dict)
    source: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingOptions:
    """The autoscaler's options for one group. ``None`` means the value of the autoscaler's own flag.

    A provider sets only the options that differ. cloudgraft fills in the rest from the defaults in the request, because
    an incomplete response would set the missing options to zero or crash the autoscaler.
    """

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: timedelta | None = None
    scale_down_unready_time: timedelta | None = None
    max_node_provision_time: timedelta | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemon_sets_utilization: bool | None = None
    max_node_startup_time: timedelta | None = None
    allow_non_atomic_scale_up_to_max: bool | None = None
    source: bytes = field(default=b"", repr=False, compare=False)

    def over(self, defaults: AutoscalingOptions) -> AutoscalingOptions:
        """Returns these options, with unset ones taken from ``defaults``."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "source"}
        set_here = {name: value for name, value in own.items() if value is not None}
        return replace(defaults, source=defaults.source or self.source, **set_here)
