"""Answers the 15 calls of the autoscaler, with any provider and any transport.

A transport passes a request message and what it knows of the caller, and gets a response message or a CloudgraftError
whose status it sends. Everything between is here: validation, deadline, metrics, logs, and the translation of a
provider's errors.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from cloudgraft.sdk.common.event_loop import contained, follow_caller, in_slices, within
from cloudgraft.sdk.common.ratelimit import RepeatLimit
from cloudgraft.sdk.common.tracing import Tracer
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    StatusCode,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.provider import Provider, Question
from cloudgraft.sdk.types import Instance, NodeGroup
from cloudgraft.service import checks
from cloudgraft.service.gate import Gate
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.service.options import FLAG_DEFAULTS, decide_reply
from cloudgraft.service.tracing import call_span
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

# -- Serialises the changes of each group, and completes a change even if its caller gives up --------------------------
# If the caller gives up before its change has begun, nothing changes. Once a change has begun, it runs to its end,
# because "done once" and "not done" are the only outcomes that the autoscaler can handle (T7).


log = logging.getLogger("cloudgraft.service")


@dataclass(slots=True, eq=False)
class _Change:
    label: str
    started: bool = False
    abandoned: bool = False


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Mutations:
    """Serialises the changes of each group; different groups do not wait for each other (R46, R89)."""

    def __init__(self, on_late: Callable[[str], None]) -> None:
        self._queues: dict[str, _Queue] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._on_late = on_late

    async def run(self, group: str, label: str, change: Callable[[], Awaitable[None]]) -> None:
        """Waits for the group's earlier changes, then makes this one."""
        mine = _Change(label)
        task = asyncio.create_task(self._in_turn(group, mine, change), name=f"{label} {group}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if mine.started:
                mine.abandoned = True
            else:
                task.cancel()
            raise

    async def drain(self, seconds: float) -> None:
        """Waits at most this long for changes under way."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def _in_turn(self, group: str, mine: _Change, change: Callable[[], Awaitable[None]]) -> None:
        queue = self._queues.setdefault(group, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                mine.started = True
                follow_caller(lambda: mine.abandoned)
                await contained(change())
        except Exception as error:
            if not mine.abandoned:
                raise
            log.warning(
                "a change failed after its caller had given up",
                extra={"rpc": mine.label, "group": group, "error": str(error)},
            )
            self._on_late(mine.label)
        else:
            if mine.abandoned:
                log.warning(
                    "a change was made after its caller had given up", extra={"rpc": mine.label, "group": group}
                )
                self._on_late(mine.label)
        finally:
            queue.users -= 1
            if queue.users == 0:
                self._queues.pop(group, None)


# Calls whose answers may be kept, and the question that each asks of the provider.
KEPT: Final = {
    "NodeGroups": "node_groups",
    "NodeGroupForNode": "node_group_for_node",
    "NodeGroupTargetSize": "target_size",
    "NodeGroupNodes": "instances",
    "NodeGroupTemplateNodeInfo": "template",
    "NodeGroupGetOptions": "options",
}
# The Go client refuses longer answers (R42).
LONGEST_ANSWER = 4 * 1024 * 1024
_TRACE_EVERY = 60.0  # seconds
_SLICE = 250  # instances converted before the event loop gets control


@dataclass(frozen=True, slots=True)
class Call:
    """The data of a call beside its request."""

    peer: str = ""
    identify: Callable[[], str] = str  # the client's name, from its certificate; looked up only where it is needed
    seconds_left: float | None = None  # until the client gives up
    traceparent: Callable[[], str] = str  # the W3C header of its trace; looked up only where it is needed


class CloudProviderService:
    """The autoscaler's protocol over one provider."""

    def __init__(
        self,
        provider: Provider,
        *,
        deadline: float = 30.0,
        force_options: bool = False,
        metrics: ServiceMetrics | None = None,
        gate: Gate | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Serves ``provider``; no call may take longer than ``deadline`` seconds, whatever its client allows.

        ``force_options`` sends option overrides even to releases where they do harm (see service/options.py).
        Every call has to pass the ``gate``. With a ``tracer``, each call is a span.
        """
        self.provider = provider
        self._tracer = tracer
        self.metrics = metrics or ServiceMetrics()
        self.deadline = deadline
        self._force_options = force_options
        self._gate = gate
        self._groups: dict[str, NodeGroup] = {}
        self._warned: set[tuple[str, str]] = set()
        self._traced: dict[tuple[str, type[Exception]], float] = {}
        self._failures = RepeatLimit()
        self._encoded: dict[str, tuple[Sequence[Instance], pb.NodeGroupNodesResponse]] = {}
        self._mutations = Mutations(lambda rpc: self.metrics.late_mutations.labels(rpc).inc())
        self._methods: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "NodeGroups": self._node_groups,
            "NodeGroupForNode": self._node_group_for_node,
            "PricingNodePrice": self._pricing_node_price,
            "PricingPodPrice": self._pricing_pod_price,
            "GPULabel": self._gpu_label,
            "GetAvailableGPUTypes": self._get_available_gpu_types,
            "Cleanup": self._cleanup,
            "Refresh": self._refresh,
            "NodeGroupTargetSize": self._target_size,
            "NodeGroupIncreaseSize": self._increase_size,
            "NodeGroupDeleteNodes": self._delete_nodes,
            "NodeGroupDecreaseTargetSize": self._decrease_target_size,
            "NodeGroupNodes": self._nodes,
            "NodeGroupTemplateNodeInfo": self._template_node_info,
            "NodeGroupGetOptions": self._get_options,
        }

    async def close(self, seconds: float) -> None:
        """Waits at most this long for changes whose callers have given up."""
        await self._mutations.drain(seconds)

    async def handle_bytes(self, rpc: str, data: bytes, call: Call) -> bytes:
        """Answers one call in wire encoding. Undecodable bytes are rejected as INVALID_ARGUMENT."""
        return (await self.handle(rpc, self._decoded(rpc, data, call), call)).SerializeToString()

    async def handle_to_keep(self, rpc: str, data: bytes, call: Call) -> tuple[bytes, Collection[str] | None]:
        """The answer, and the subjects that it depends on; None for subjects when the answer must not be kept."""
        request = self._decoded(rpc, data, call)
        subjects = self._dependencies(rpc, request)  # before the answer: changes during the call are published then
        return (await self.handle(rpc, request, call)).SerializeToString(), subjects

    def _decoded(self, rpc: str, data: bytes, call: Call) -> Any:
        kind = RPCS[rpc].request
        try:
            return kind.FromString(data)
        except DecodeError as error:
            failure = InvalidArgumentError(f"the request is not a valid {kind.DESCRIPTOR.name}")
            self.metrics.meter(rpc).codes[failure.status].inc()
            self._log_failure(rpc, call, failure, {})
            raise failure from error

    def _dependencies(self, rpc: str, request: Any) -> Collection[str] | None:
        method = KEPT.get(rpc)
        if method is None:
            return None
        group = request.id if rpc not in ("NodeGroups", "NodeGroupForNode") else ""
        node = wire.node_ref_from_pb(request.node) if rpc == "NodeGroupForNode" else None
        return self.provider.dependencies(Question(method, group, node))

    async def handle(self, rpc: str, request: Message, call: Call) -> Message:
        """Answers one call; every failure is a CloudgraftError."""
        if self._tracer is None:
            return await self._handle(rpc, request, call)
        with call_span(self._tracer, rpc, request, call.traceparent()):
            return await self._handle(rpc, request, call)

    async def _handle(self, rpc: str, request: Message, call: Call) -> Message:
        self.metrics.last_call = time.time()
        started = time.perf_counter()
        code = StatusCode.OK
        try:
            response = await self._answer(rpc, request, call)
        except CloudgraftError as error:
            code = error.status
            self._log_failure(rpc, call, error, _subject(request))
            raise
        except asyncio.CancelledError:
            code = StatusCode.CANCELLED
            raise
        else:
            return response
        finally:
            seconds = time.perf_counter() - started
            meter = self.metrics.meter(rpc)
            meter.seconds.observe(seconds)
            meter.codes[code].inc()
            if log.isEnabledFor(logging.DEBUG):
                about = {"rpc": rpc, "code": code.name, "ms": round(seconds * 1000, 3)}
                log.debug("call", extra={**about, **_caller(call), **_subject(request)})

    async def _answer(self, rpc: str, request: Message, call: Call) -> Message:
        seconds = self.deadline if call.seconds_left is None else min(call.seconds_left, self.deadline)
        if self._gate is not None:
            seconds -= await self._gate.let_through(seconds)
        return await within(
            seconds,
            lambda: self._methods[rpc](request),
            late=lambda: DeadlineError(f"the provider did not answer {rpc} within {seconds:.1f} s"),
            failed=lambda error: self._incident(rpc, error),
        )

    def _log_failure(self, rpc: str, call: Call, error: CloudgraftError, subject: dict[str, object]) -> None:
        """Logs a failed call. The same reason is one line a minute: a full disk fails every call for hours."""
        about = {"rpc": rpc, "code": error.status.name, "error": error.message, **_caller(call), **subject}
        # A server that cannot answer has one reason for all calls and groups; other errors are about one of them.
        which = () if isinstance(error, UnavailableError) else (rpc, *subject.values())
        # An unsupported call is an answer, not a failure; the autoscaler may make it thousands of times.
        dropped = None if isinstance(error, UnsupportedError) else self._failures.admit((error.message, *which))
        if dropped is None:
            log.debug("%s failed: %s: %s", rpc, error.status.name, error.message, extra=about)
            return
        more = f" ({dropped} more calls failed for this reason since the last such line)" if dropped else ""
        log.warning("%s failed: %s: %s%s", rpc, error.status.name, error.message, more, extra=about)

    def _incident(self, rpc: str, error: Exception) -> CloudgraftError:
        # The text of an unexpected exception may contain anything, even a password: only the log may have it.
        incident = secrets.token_hex(4)
        log.error(
            "the provider raised an unexpected exception in %s (id %s)",
            *(rpc, incident),
            exc_info=error if self._is_news(rpc, error) else None,
            extra={"rpc": rpc, "id": incident, "error": type(error).__name__},
        )
        return InternalError(f"internal error (id {incident}): the server's log has the details")

    def _is_news(self, rpc: str, error: Exception) -> bool:
        """True once a minute for each kind of exception: thousands of tracebacks per loop would block everything."""
        now, kind = time.monotonic(), (rpc, type(error))
        if now - self._traced.get(kind, -_TRACE_EVERY) < _TRACE_EVERY:
            return False
        self._traced[kind] = now
        return True

    # -- all groups --------------------------------------------------------------------------------------------------

    async def _node_groups(self, _request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        groups = await self._list_groups()
        return pb.NodeGroupsResponse(nodeGroups=[wire.node_group_to_pb(group) for group in groups.values()])

    async def _node_group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        node = wire.node_ref_from_pb(request.node)
        checks.check_node(node)
        group = await self.provider.node_group_for_node(node)
        if group is None:
            return pb.NodeGroupForNodeResponse()
        checks.check_group_answer(group, "node_group_for_node()")
        if group.id not in self._groups and group.id not in await self._list_groups():
            # R18: a group that is not listed would crash the autoscaler; "not managed" leaves the node alone.
            self._warn_once(group.id, "a node was said to belong to a group that is not listed; it is left alone")
            return pb.NodeGroupForNodeResponse()
        return pb.NodeGroupForNodeResponse(nodeGroup=wire.node_group_to_pb(group))

    async def _pricing_node_price(self, request: pb.PricingNodePriceRequest) -> pb.PricingNodePriceResponse:
        node = wire.node_ref_from_pb(request.node)
        checks.check_node(node)
        start, end = wire.period_from_pb(request)
        checks.check_period(start, end)
        price = await self.provider.node_price(node, start, end)
        return pb.PricingNodePriceResponse(price=checks.check_price_answer(price, "node_price()"))

    async def _pricing_pod_price(self, request: pb.PricingPodPriceRequest) -> pb.PricingPodPriceResponse:
        pod = wire.pod_from_pb(request)
        start, end = wire.period_from_pb(request)
        checks.check_period(start, end)
        price = await self.provider.pod_price(pod, start, end)
        return pb.PricingPodPriceResponse(price=checks.check_price_answer(price, "pod_price()"))

    async def _gpu_label(self, _request: pb.GPULabelRequest) -> pb.GPULabelResponse:
        try:
            label = await self.provider.gpu_label()
        except UnsupportedError:  # R78: "none" is an answer, an error costs two calls per node
            label = ""
        return pb.GPULabelResponse(label=checks.check_gpu_label_answer(label))

    async def _get_available_gpu_types(
        self, _request: pb.GetAvailableGPUTypesRequest
    ) -> pb.GetAvailableGPUTypesResponse:
        try:
            types = await self.provider.gpu_types()
        except UnsupportedError:
            types = ()
        return wire.gpu_types_to_pb(checks.check_gpu_types_answer(types))

    async def _cleanup(self, _request: pb.CleanupRequest) -> pb.CleanupResponse:
        await self.provider.cleanup()
        return pb.CleanupResponse()

    async def _refresh(self, _request: pb.RefreshRequest) -> pb.RefreshResponse:
        await self.provider.refresh()
        return pb.RefreshResponse()

    # -- one group ---------------------------------------------------------------------------------------------------

    async def _target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        group = await self._group(request.id)
        target = await self.provider.target_size(group.id)
        return pb.NodeGroupTargetSizeResponse(targetSize=checks.check_target_answer(target, group.id))

    async def _increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        group, delta = await self._group(request.id), request.delta
        checks.check_increase(delta)

        async def change() -> None:
            target = checks.check_target_answer(await self.provider.target_size(group.id), group.id)
            checks.check_within_max(group, target, delta)
            await self.provider.increase_size(group.id, delta)

        await self._mutations.run(group.id, "NodeGroupIncreaseSize", change)
        return pb.NodeGroupIncreaseSizeResponse()

    async def _delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        group = await self._group(request.id)
        nodes = [wire.node_ref_from_pb(node) for node in request.nodes]
        checks.check_nodes(nodes)
        await self._mutations.run(group.id, "NodeGroupDeleteNodes", lambda: self.provider.delete_nodes(group.id, nodes))
        return pb.NodeGroupDeleteNodesResponse()

    async def _decrease_target_size(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        group, delta = await self._group(request.id), request.delta
        checks.check_decrease(delta)
        await self._mutations.run(
            group.id, "NodeGroupDecreaseTargetSize", lambda: self.provider.decrease_target_size(group.id, delta)
        )
        return pb.NodeGroupDecreaseTargetSizeResponse()

    async def _nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        group = await self._group(request.id)
        instances = await self.provider.instances(group.id)
        # A provider that answers from memory returns the same tuple until something changes.
        known, response = self._encoded.get(group.id, (None, pb.NodeGroupNodesResponse()))
        if known is not instances or not isinstance(instances, tuple):
            checked = checks.check_instances_answer(instances, group.id)
            response = await _encode_instances(checked)
            if response.ByteSize() > LONGEST_ANSWER:
                raise InternalError(
                    f"group {checks.shown(group.id)} has {len(checked)} instances, more than the autoscaler can read "
                    f"in one answer; split it into several groups"
                )
            self._encoded[group.id] = (checked, response)
        return response

    async def _template_node_info(
        self, request: pb.NodeGroupTemplateNodeInfoRequest
    ) -> pb.NodeGroupTemplateNodeInfoResponse:
        group = await self._group(request.id)
        try:
            template = checks.check_template_answer(await self.provider.template(group.id), group.id)
        except UnsupportedError:
            self._warn_once(
                group.id, "the provider has no template for this group: it cannot be scaled up from zero (R66)"
            )
            raise
        missing = checks.missing_resources(template)
        if missing:
            self._warn_once(group.id, f"the template allows no {', '.join(missing)}: no pod will ever fit on it")
        try:
            return wire.template_to_pb(template)
        except InvalidArgumentError as error:  # the provider's mistake, not the caller's
            raise InternalError(f"the template of group {checks.shown(group.id)} is wrong: {error.message}") from error

    async def _get_options(
        self, request: pb.NodeGroupAutoscalingOptionsRequest
    ) -> pb.NodeGroupAutoscalingOptionsResponse:
        group = self._groups.get(request.id) or await self._group(request.id)
        sent, age = wire.defaults_from_pb(request)
        defaults = sent or FLAG_DEFAULTS
        try:
            wanted = await self.provider.options(group.id, defaults)
        except UnsupportedError:
            if age.up_to_1_28:  # such a client takes code 12 for a failure (R73, B9)
                return pb.NodeGroupAutoscalingOptionsResponse()
            raise
        reply = decide_reply(checks.check_options_answer(wanted, group.id), defaults, age, force=self._force_options)
        if reply.warning:
            self._warn_once(group.id, reply.warning)
        if reply.options is None:
            return pb.NodeGroupAutoscalingOptionsResponse()
        return pb.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=wire.options_to_pb(reply.options))

    # -- helpers -----------------------------------------------------------------------------------------------------

    async def _group(self, group: str) -> NodeGroup:
        """The group of that id, or the right error."""
        known = self._groups.get(group)
        if known is None:
            checks.check_group_id(group)
            known = (await self._list_groups()).get(group)
            if known is None:
                raise NotFoundError(f"there is no node group {checks.shown(group)}")
        return known

    async def _list_groups(self) -> dict[str, NodeGroup]:
        groups = checks.check_groups_answer(await self.provider.node_groups())
        self._groups = {group.id: group for group in groups}
        self._encoded = {group: kept for group, kept in self._encoded.items() if group in self._groups}
        return self._groups

    def _warn_once(self, group: str, message: str) -> None:
        if (group, message) not in self._warned:
            self._warned.add((group, message))
            log.warning(message, extra={"group": group})


async def _encode_instances(instances: Sequence[Instance]) -> pb.NodeGroupNodesResponse:
    """Encodes in slices: thousands of instances at once would block every other call."""
    response = pb.NodeGroupNodesResponse()
    async for some in in_slices(instances, _SLICE):
        response.instances.extend(wire.instance_to_pb(instance) for instance in some)
    return response


def _caller(call: Call) -> dict[str, object]:
    name = call.identify()
    return {"peer": call.peer, "client": name} if name else {"peer": call.peer}


def _subject(request: Message) -> dict[str, object]:
    """The subject of a request, for the log."""
    subject: dict[str, object] = {}
    for name in ("id", "delta"):
        if name in request.DESCRIPTOR.fields_by_name:
            subject["group" if name == "id" else name] = getattr(request, name)
    if isinstance(request, pb.NodeGroupForNodeRequest | pb.PricingNodePriceRequest):
        subject["node"] = request.node.name
    return subject
