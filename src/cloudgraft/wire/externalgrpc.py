"""Defines the autoscaler's protocol: 15 calls, and the conversion between its messages and the types of the sdk.

Writers fill the old and the new field of each pair, readers take whichever is there: that is all it takes to serve
every release from 1.25 on (see externalgrpc.proto).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import (
    AutoscalingOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Pod,
)
from cloudgraft.wire import kubernetes
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from cloudgraft.wire.rpc import rpc_table

SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
RPCS: Final = rpc_table(pb.DESCRIPTOR.services_by_name["CloudProvider"])


# -- groups, nodes, instances ------------------------------------------------------------------------------------------


def node_group_to_pb(group: NodeGroup) -> pb.NodeGroup:
    return pb.NodeGroup(id=group.id, minSize=group.min_size, maxSize=group.max_size, debug=group.debug)


def node_group_from_pb(message: pb.NodeGroup) -> NodeGroup:
    return NodeGroup(id=message.id, min_size=message.minSize, max_size=message.maxSize, debug=message.debug)


def node_ref_to_pb(node: NodeRef) -> pb.ExternalGrpcNode:
    return pb.ExternalGrpcNode(
        providerID=node.provider_id, name=node.name, labels=node.labels, annotations=node.annotations
    )


def node_ref_from_pb(message: pb.ExternalGrpcNode) -> NodeRef:
    return NodeRef(
        name=message.name,
        provider_id=message.providerID,
        labels=_Texts(message.labels),
        annotations=_Texts(message.annotations),
    )


class _Texts(Mapping[str, str]):
    """A map of a message, copied on first use: most providers use only the id."""

    __slots__ = ("_copy", "_source")

    def __init__(self, source: Mapping[str, str]) -> None:
        self._source = source
        self._copy: dict[str, str] | None = None

    def __getitem__(self, key: str) -> str:
        return self._texts()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts())

    def __len__(self) -> int:
        return len(self._texts())

    def __repr__(self) -> str:
        return repr(self._texts())

    def _texts(self) -> dict[str, str]:
        if self._copy is None:
            self._copy = dict(self._source)
        return self._copy


def instance_to_pb(instance: Instance) -> pb.Instance:
    # The generated enum takes plain numbers; ours has the same ones.
    status = pb.InstanceStatus(instanceState=instance.state.value)  # type: ignore[arg-type]
    if instance.error is not None:
        status.errorInfo.errorCode = instance.error.code
        status.errorInfo.errorMessage = instance.error.message
        status.errorInfo.instanceErrorClass = instance.error.error_class
    return pb.Instance(id=instance.id, status=status)


def instance_from_pb(message: pb.Instance) -> Instance:
    """An instance as the autoscaler would see it: an error counts only while it is being created (R34)."""
    # A state of a newer release: the client treats what it does not know as merely present.
    state = _STATES.get(message.status.instanceState, InstanceState.UNSPECIFIED)
    info = message.status.errorInfo
    if not info.errorCode or state is not InstanceState.CREATING:
        return Instance(id=message.id, state=state)
    error = InstanceError(code=info.errorCode, message=info.errorMessage, error_class=info.instanceErrorClass)
    return Instance(id=message.id, state=state, error=error)


_STATES: Final[dict[int, InstanceState]] = {state.value: state for state in InstanceState}


def gpu_types_to_pb(types: Collection[str]) -> pb.GetAvailableGPUTypesResponse:
    return pb.GetAvailableGPUTypesResponse(gpuTypes={name: Any() for name in types})


# -- template ----------------------------------------------------------------------------------------------------------


def template_to_pb(template: NodeTemplate) -> pb.NodeGroupTemplateNodeInfoResponse:
    """The template in both fields: releases up to 1.34.1 read only the first, from 1.35 on only the second."""
    node = kubernetes.encode_node(template)
    return pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=node, nodeBytes=node)


def template_from_pb(message: pb.NodeGroupTemplateNodeInfoResponse) -> NodeTemplate:
    """The template from whichever field the server filled."""
    return kubernetes.decode_node(message.nodeBytes or message.nodeInfo)


# -- prices ------------------------------------------------------------------------------------------------------------


def pod_from_pb(message: pb.PricingPodPriceRequest) -> Pod:
    return kubernetes.decode_pod(message.pod_bytes or message.pod)


def price_request_to_pb(node: NodeRef, start: datetime, end: datetime) -> pb.PricingNodePriceRequest:
    begin, until = timestamp_to_pb(start), timestamp_to_pb(end)
    return pb.PricingNodePriceRequest(
        node=node_ref_to_pb(node), startTime=begin, endTime=until, startTimestamp=begin, endTimestamp=until
    )


def pod_price_request_to_pb(pod: Pod, start: datetime, end: datetime) -> pb.PricingPodPriceRequest:
    begin, until, encoded = timestamp_to_pb(start), timestamp_to_pb(end), kubernetes.encode_pod(pod)
    return pb.PricingPodPriceRequest(
        pod=encoded, startTime=begin, endTime=until, pod_bytes=encoded, startTimestamp=begin, endTimestamp=until
    )


def period_from_pb(message: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest) -> tuple[datetime, datetime]:
    """The period of a price request, from whichever pair of fields the client filled."""
    start = message.startTimestamp if message.HasField("startTimestamp") else message.startTime
    end = message.endTimestamp if message.HasField("endTimestamp") else message.endTime
    return timestamp_from_pb(start), timestamp_from_pb(end)


def timestamp_to_pb(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


def timestamp_from_pb(message: Timestamp) -> datetime:
    try:
        return message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"the time {message.seconds}s {message.nanos}ns is out of range") from error


# -- options -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientAge:
    """What the defaults in a GetOptions request show about the client that sent them.

    Nothing else in the protocol shows a release. The patches 1.34.0 and 1.34.1 count with 1.33.
    """

    up_to_1_28: bool  # mishandles code 12, and reads no provision time
    may_be_1_29_to_1_32: bool  # or 1.33 with both booleans false, which are then not on the wire
    since_1_35: bool  # has a startup time that this protocol could not set for long
    reads_startup_time: bool  # newer than 1.37: accepts that startup time


def client_age(defaults: pb.NodeGroupAutoscalingOptions) -> ClientAge:
    """Recognises a client's age by which fields of the defaults it fills.

    A request without any defaults is not an autoscaler's; it counts as a client that can do everything.
    """
    old = defaults.HasField("scaleDownUnneededTime")
    new = defaults.HasField("scaleDownUnneededDuration")
    provision = defaults.HasField("MaxNodeProvisionTime")
    return ClientAge(
        up_to_1_28=old and not new and not provision,
        may_be_1_29_to_1_32=(
            provision and not new and not defaults.zeroOrMaxNodeScaling and not defaults.ignoreDaemonSetsUtilization
        ),
        since_1_35=new and not old,
        reads_startup_time=defaults.HasField("maxNodeStartupDuration"),
    )


def defaults_from_pb(
    message: pb.NodeGroupAutoscalingOptionsRequest,
) -> tuple[AutoscalingOptions | None, ClientAge]:
    """The defaults of a request, None when it has none, and the age of the client that they show."""
    if not message.HasField("defaults"):
        return None, client_age(message.defaults)
    encoded = message.defaults.SerializeToString(deterministic=True)
    if len(encoded) > _LONGEST_REMEMBERED:  # unknown fields can be of any size, and must not fill the memory
        return _defaults_from_bytes.__wrapped__(encoded)
    return _defaults_from_bytes(encoded)


_LONGEST_REMEMBERED: Final = 4096


@lru_cache(maxsize=256)
def _defaults_from_bytes(encoded: bytes) -> tuple[AutoscalingOptions, ClientAge]:
    # An autoscaler sends the same defaults thousands of times per loop: decoding them once is enough.
    message = pb.NodeGroupAutoscalingOptions.FromString(encoded)
    return options_from_pb(message), client_age(message)


def options_from_pb(message: pb.NodeGroupAutoscalingOptions) -> AutoscalingOptions:
    """Options from a request's defaults or a server's answer; durations from whichever field is there."""
    return AutoscalingOptions(
        scale_down_utilization_threshold=message.scaleDownUtilizationThreshold,
        scale_down_gpu_utilization_threshold=message.scaleDownGpuUtilizationThreshold,
        scale_down_unneeded_time=_duration(message, "scaleDownUnneededDuration", "scaleDownUnneededTime"),
        scale_down_unready_time=_duration(message, "scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
        max_node_provision_time=_duration(message, "MaxNodeProvisionDuration", "MaxNodeProvisionTime"),
        zero_or_max_node_scaling=message.zeroOrMaxNodeScaling,
        ignore_daemon_sets_utilization=message.ignoreDaemonSetsUtilization,
        max_node_startup_time=_duration(message, "maxNodeStartupDuration", None),
        allow_non_atomic_scale_up_to_max=(
            message.allowNonAtomicScaleUpToMax if message.HasField("allowNonAtomicScaleUpToMax") else None
        ),
        source=message.SerializeToString(deterministic=True),
    )


def _duration(message: pb.NodeGroupAutoscalingOptions, new: str, old: str | None) -> timedelta | None:
    # Field names as strings: the three pairs differ in nothing else.
    try:
        if message.HasField(new):  # type: ignore[arg-type]
            duration: Duration = getattr(message, new)
            return timedelta(seconds=duration.seconds, microseconds=duration.nanos // 1000)
        if old is not None and message.HasField(old):  # type: ignore[arg-type]
            nanoseconds: pb.NanosecondDuration = getattr(message, old)
            return timedelta(microseconds=nanoseconds.nanoseconds // 1000)
    except OverflowError as error:
        raise InvalidArgumentError(f"the duration {new} is out of range") from error
    return None


def options_to_pb(options: AutoscalingOptions) -> pb.NodeGroupAutoscalingOptions:
    """Options with every duration in both encodings, and with the unknown fields of the message they came from."""
    message = pb.NodeGroupAutoscalingOptions.FromString(options.source)
    message.scaleDownUtilizationThreshold = options.scale_down_utilization_threshold or 0.0
    message.scaleDownGpuUtilizationThreshold = options.scale_down_gpu_utilization_threshold or 0.0
    message.zeroOrMaxNodeScaling = options.zero_or_max_node_scaling or False
    message.ignoreDaemonSetsUtilization = options.ignore_daemon_sets_utilization or False
    for value, old, new in (
        (options.scale_down_unneeded_time, message.scaleDownUnneededTime, message.scaleDownUnneededDuration),
        (options.scale_down_unready_time, message.scaleDownUnreadyTime, message.scaleDownUnreadyDuration),
        (options.max_node_provision_time, message.MaxNodeProvisionTime, message.MaxNodeProvisionDuration),
        (options.max_node_startup_time, None, message.maxNodeStartupDuration),
    ):
        if value is not None:
            new.FromTimedelta(value)
            new.SetInParent()  # a duration of zero has no bytes of its own, but must be there
            if old is not None:
                old.nanoseconds = _nanoseconds(value)
                old.SetInParent()
    if options.allow_non_atomic_scale_up_to_max is not None:
        message.allowNonAtomicScaleUpToMax = options.allow_non_atomic_scale_up_to_max
    return message


def _nanoseconds(value: timedelta) -> int:
    return (value // timedelta(microseconds=1)) * 1000
