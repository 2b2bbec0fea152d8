"""What the Go client of each release does with the wire: which fields it fills, which it reads, where it would crash.

It talks to a service through bytes only, and knows nothing but the messages of its own release.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.sdk.types import NodeRef, Pod
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS as SERVED
from tests.wire.release_messages import RPCS, Release


class GoPanicError(Exception):
    """The autoscaler of this release would have crashed on that answer."""


class NotImplementedByServerError(Exception):
    """The client understood code 12: the capability is absent, and that is fine."""


@dataclass(frozen=True, kw_only=True)
class GoOptions:
    """The options as the autoscaler holds them. What its wire cannot carry is zero after a reply."""

    threshold: float = 0.5
    gpu_threshold: float = 0.5
    unneeded: timedelta = timedelta(minutes=10)
    unready: timedelta = timedelta(minutes=20)
    provision: timedelta = timedelta(minutes=15)
    zero_or_max: bool = False
    ignore_daemon_sets: bool = False
    startup: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class GoInstance:
    id: str
    state: int | None = None
    error: tuple[int, str, str] | None = None


class GoClient:
    """The autoscaler's client of one release, in front of a service."""

    def __init__(self, release: Release, service: CloudProviderService) -> None:
        self.release = release
        self.service = service

    async def call(self, rpc: str, **fields: Any) -> Any:
        """One call: bytes out, bytes in. The server must know every field that this release sends."""
        sent = self.release.new(RPCS[rpc][0], **fields).SerializeToString()
        request = SERVED[rpc].request.FromString(sent)
        assert_fully_known(request)
        response = await self.service.handle(rpc, request, Call())
        assert isinstance(response, SERVED[rpc].response)
        return self.release.message_class(RPCS[rpc][1]).FromString(response.SerializeToString())

    # -- node groups -----------------------------------------------------------------------------------------------

    async def node_groups(self) -> list[tuple[str, int, int, str]]:
        return [(g.id, g.minSize, g.maxSize, g.debug) for g in (await self.call("NodeGroups")).nodeGroups]

    async def node_group_for_node(self, node: NodeRef) -> tuple[str, int, int] | None:
        group = (await self.call("NodeGroupForNode", node=self._node(node))).nodeGroup
        return (group.id, group.minSize, group.maxSize) if group.id else None

    async def target_size(self, group: str) -> int:
        response = await self.call("NodeGroupTargetSize", id=group)
        return int(response.targetSize)

    async def nodes(self, group: str) -> list[GoInstance]:
        response = await self.call("NodeGroupNodes", id=group)
        return [_instance(instance) for instance in response.instances]

    async def increase_size(self, group: str, delta: int) -> None:
        await self.call("NodeGroupIncreaseSize", id=group, delta=delta)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        await self.call("NodeGroupDecreaseTargetSize", id=group, delta=delta)

    async def delete_nodes(self, group: str, nodes: list[NodeRef]) -> None:
        await self.call("NodeGroupDeleteNodes", id=group, nodes=[self._node(node) for node in nodes])

    # -- template --------------------------------------------------------------------------------------------------

    async def template(self, group: str) -> Any:
        """The node: field 1 up to 1.34.1, field 2 or else 1 in 1.34.2, field 2 alone since. None is a crash (B5)."""
        response = await self._optional("NodeGroupTemplateNodeInfo", id=group)
        if self.release.since("1.34") and response.nodeBytes:
            return self.release.message_class("Node").FromString(response.nodeBytes)
        if not self.release.since("1.35-37") and response.HasField("nodeInfo"):
            return response.nodeInfo
        raise GoPanicError("an answer without a node")

    # -- options ---------------------------------------------------------------------------------------------------

    async def options(self, group: str, defaults: GoOptions) -> GoOptions | None:
        """The group's options, or None for "use the defaults"."""
        response = await self._optional("NodeGroupGetOptions", id=group, defaults=self._options(defaults))
        if not response.HasField("nodeGroupAutoscalingOptions"):
            return None
        return self._read_options(response.nodeGroupAutoscalingOptions)

    def _options(self, options: GoOptions) -> Any:
        values: dict[str, Any] = {
            "scaleDownUtilizationThreshold": options.threshold,
            "scaleDownGpuUtilizationThreshold": options.gpu_threshold,
            "zeroOrMaxNodeScaling": options.zero_or_max,
            "ignoreDaemonSetsUtilization": options.ignore_daemon_sets,
            "scaleDownUnneededTime": self._meta_duration(options.unneeded),
            "scaleDownUnreadyTime": self._meta_duration(options.unready),
            "MaxNodeProvisionTime": self._meta_duration(options.provision),
            "scaleDownUnneededDuration": self._duration(options.unneeded),
            "scaleDownUnreadyDuration": self._duration(options.unready),
            "MaxNodeProvisionDuration": self._duration(options.provision),
            "maxNodeStartupDuration": self._duration(options.startup),
        }
        name = "NodeGroupAutoscalingOptions"
        return self.release.new(name, **{f: value for f, value in values.items() if self.release.has(name, f)})

    def _read_options(self, options: Any) -> GoOptions:
        since_1_33 = self.release.since("1.33")
        return GoOptions(
            threshold=options.scaleDownUtilizationThreshold,
            gpu_threshold=options.scaleDownGpuUtilizationThreshold,
            unneeded=self._read_duration(options, "scaleDownUnneededDuration", "scaleDownUnneededTime"),
            unready=self._read_duration(options, "scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
            provision=self._read_duration(options, "MaxNodeProvisionDuration", "MaxNodeProvisionTime"),
            zero_or_max=since_1_33 and options.zeroOrMaxNodeScaling,
            ignore_daemon_sets=since_1_33 and options.ignoreDaemonSetsUtilization,
            startup=self._read_duration(options, "maxNodeStartupDuration", "-"),
        )

    def _read_duration(self, options: Any, new: str, old: str) -> timedelta:
        name = options.DESCRIPTOR.name
        if self.release.has(name, new) and options.HasField(new):
            value = getattr(options, new)
            return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        if not self.release.has(name, old):
            return timedelta(0)
        if not options.HasField(old):
            raise GoPanicError(f"{old}: the duration of nothing (B4)")
        return timedelta(microseconds=getattr(options, old).duration // 1000)

    # -- prices, GPUs, life cycle ----------------------------------------------------------------------------------

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        response = await self._optional("PricingNodePrice", node=self._node(node), **self._period(start, end))
        return float(response.price)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        message = self._pod(pod)
        fields = {} if self.release.since("1.35-37") else {"pod": message}
        if self.release.since("1.34"):
            fields["pod_bytes"] = message.SerializeToString()
        response = await self._optional("PricingPodPrice", **fields, **self._period(start, end))
        return float(response.price)

    async def gpu_label(self) -> str:
        return str((await self.call("GPULabel")).label)

    async def gpu_types(self) -> set[str]:
        return set((await self.call("GetAvailableGPUTypes")).gpuTypes)

    async def refresh(self) -> None:
        await self.call("Refresh")

    async def cleanup(self) -> None:
        await self.call("Cleanup")

    # -- helpers ---------------------------------------------------------------------------------------------------

    async def _optional(self, rpc: str, **fields: Any) -> Any:
        """A call in which code 12 means "no such capability", but only to clients since 1.29 (B9)."""
        try:
            return await self.call(rpc, **fields)
        except CloudgraftError as error:
            if error.status is StatusCode.UNIMPLEMENTED and self.release.since("1.29-32"):
                raise NotImplementedByServerError from error
            raise

    def _node(self, node: NodeRef) -> Any:
        values = {"labels": dict(node.labels), "annotations": dict(node.annotations)}
        return self.release.new("ExternalGrpcNode", name=node.name, providerID=node.provider_id, **values)

    def _pod(self, pod: Pod) -> Any:
        new = self.release.new
        containers = [
            new(
                "Container",
                name=container.name,
                resources=new(
                    "ResourceRequirements",
                    requests={name: new("Quantity", string=str(q)) for name, q in container.requests.items()},
                ),
            )
            for container in pod.containers
        ]
        meta = new("ObjectMeta", name=pod.name, labels=dict(pod.labels))
        return new("Pod", metadata=meta, spec=new("PodSpec", containers=containers))

    def _period(self, start: datetime, end: datetime) -> dict[str, Any]:
        fields = {}
        if not self.release.since("1.35-37"):  # metav1.Time sends whole seconds
            fields["startTime"] = self.release.new("MetaTime", seconds=int(start.timestamp()))
            fields["endTime"] = self.release.new("MetaTime", seconds=int(end.timestamp()))
        if self.release.since("1.34"):
            fields["startTimestamp"] = self._timestamp(start)
            fields["endTimestamp"] = self._timestamp(end)
        return fields

    def _timestamp(self, time: datetime) -> Any:
        return self.release.new("Timestamp", seconds=int(time.timestamp()), nanos=time.microsecond * 1000)

    def _duration(self, value: timedelta) -> Any:
        seconds, rest = divmod(value, timedelta(seconds=1))
        return self.release.new("Duration", seconds=seconds, nanos=rest.microseconds * 1000)

    def _meta_duration(self, value: timedelta) -> Any:
        return self.release.new("MetaDuration", duration=value // timedelta(microseconds=1) * 1000)


def assert_fully_known(message: Message) -> None:
    """Nothing in the message, at any depth, is a field that its type does not know."""
    assert not len(UnknownFieldSet(message)), f"{message.DESCRIPTOR.name} does not know all fields that were sent"
    for _, value in message.ListFields():
        for part in value.values() if hasattr(value, "values") else _parts(value):
            if isinstance(part, Message):
                assert_fully_known(part)


def _parts(value: Any) -> list[Any]:
    return [value] if isinstance(value, Message) or not hasattr(value, "__iter__") else list(value)


def _instance(instance: Any) -> GoInstance:
    if not instance.status.instanceState:
        return GoInstance(id=instance.id)
    info = instance.status.errorInfo
    error = (info.instanceErrorClass, info.errorCode, info.errorMessage) if info.errorCode else None
    return GoInstance(id=instance.id, state=instance.status.instanceState, error=error)
