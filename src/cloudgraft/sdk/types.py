"""The words of the interface between a provider and the autoscaler.

Everything here is a value: frozen, compared by content, safe to share between tasks and threads.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta

from cloudgraft.sdk.errors import ErrorClass, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

__all__ = [
    "TAINT_EFFECTS",
    "AutoscalingOptions",
    "Container",
    "Instance",
    "InstanceError",
    "InstanceState",
    "NodeCondition",
    "NodeGroup",
    "NodeRef",
    "NodeTemplate",
    "Pod",
    "Taint",
]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FAKE_NODE_REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A set of machines of one type that the autoscaler grows and shrinks.

    ``id`` must be non-empty, unique, and the same after a restart: the autoscaler keys its memory by it.
    """

    id: str
    min_size: int
    max_size: int
    debug: str = ""  # for the autoscaler's log only


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """What the autoscaler tells of a node: no taints, no conditions, no age.

    Not every node exists. For an instance without a node the autoscaler makes up one whose name and provider id are
    both the instance's id (:attr:`is_fake`), and for a simulated scale-up one that is named
    ``template-node-for-<group>-…``.
    """

    name: str = ""
    provider_id: str = ""  # may be empty on a fresh node: match by name then
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fake(self) -> bool:
        """True for a node that the autoscaler made up for an instance that has none."""
        return _FAKE_NODE_REASON in self.annotations

    @property
    def fake_reason(self) -> str:
        """Why a made-up node was made up: ``unregistered``, ``create-error`` or nothing."""
        return self.annotations.get(_FAKE_NODE_REASON, "")


class InstanceState(enum.Enum):
    """Where a machine is in its life, as far as the autoscaler cares."""

    UNSPECIFIED = 0  # present, expected to register
    RUNNING = 1
    CREATING = 2
    DELETING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceError:
    """Why an instance could not be created. The autoscaler acts on it only while the state is CREATING."""

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
        """Refuses an error that the autoscaler would never see."""
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
    """What a new node of a group will look like to the scheduler, before the first one exists.

    ``allocatable`` needs cpu, memory and pods, and whatever else pods ask for; without ``pods`` nothing ever fits.
    Labels and taints must be exactly those that real nodes get. Leave ``name`` and ``provider_id`` empty: the
    autoscaler puts in its own.
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
    # The message this was decoded from, so that fields we do not know are written out again.
    source: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod, as far as its price is concerned."""

    name: str = ""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    restart_policy: str = ""  # "Always" on an init container makes it run for the pod's whole life


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that is to be priced."""

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
    """How the autoscaler treats one group. ``None`` means: as the autoscaler itself was told by its flags.

    A provider answers only what it wants to differ; cloudgraft fills in the rest from the defaults that came with the
    request, because an incomplete answer on the wire would set the missing options to zero or crash the autoscaler.
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
        """These options where they are set, those of ``defaults`` where they are not."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "source"}
        set_here = {name: value for name, value in own.items() if value is not None}
        return replace(defaults, source=defaults.source or self.source, **set_here)
