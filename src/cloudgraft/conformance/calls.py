"""Calls the server under test as the autoscaler does, and keeps every call as text for the report."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from cloudgraft.client.connection import Connection
from cloudgraft.client.errors import status_of
from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.releases import Options, Release
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.sdk.types import InstanceState, NodeGroup, NodeRef, Pod
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

# -- messages as text --------------------------------------------------------------------------------------------------


_LONGEST: Final = 600
_NUMBERS: Final = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_DOUBLE)


def shown(message: Message) -> str:
    """A message as text; encoded nodes and pods only by their size."""
    copy = type(message)()
    copy.CopyFrom(message)
    sizes = [f"{name}: {len(value)} bytes" for name in _encoded(copy) if (value := getattr(copy, name))]
    for name in _encoded(copy):
        copy.ClearField(name)
    rest = text_format.MessageToString(copy, as_one_line=True, as_utf8=True).strip()
    return shortened(", ".join([*sizes, *([rest] if rest else [])]) or _zeros(copy) or "(empty)")


def _zeros(message: Message) -> str:
    """Adds numbers that are 0: they are not on the wire, but they are an answer, such as a target of 0."""
    fields = message.DESCRIPTOR.fields
    return " ".join(f"{field.name}: 0" for field in fields if field.cpp_type in _NUMBERS and not field.is_repeated)


def shortened(text: str) -> str:
    """At most some hundred characters of a text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _encoded(message: Message) -> tuple[str, ...]:
    if isinstance(message, pb.NodeGroupTemplateNodeInfoResponse):
        return ("nodeInfo", "nodeBytes")
    return ("pod", "pod_bytes") if isinstance(message, pb.PricingPodPriceRequest) else ()


# -- recorded calls ----------------------------------------------------------------------------------------------------
# Makes every call as the autoscaler makes it, and records it.


_T_co = TypeVar("_T_co", covariant=True)
_U = TypeVar("_U")
_KEPT: Final = 60  # exchanges per check; a report with thousands would not help

# The client logs every failed call. Here most failures are meant to be.
_is_probing: Final = contextvars.ContextVar("is_probing", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[_T_co]):
    """A response: a value, or a status that is not OK."""

    rpc: str
    value: _T_co | None
    status: StatusCode
    error: str
    seconds: float

    @property
    def is_ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status is StatusCode.OK

    @property
    def outcome(self) -> str:
        """For messages: "OK", or the status with its words."""
        return "OK" if self.is_ok else f"{self.status.name}: {shortened(self.error)}"

    def expect(self, what: str = "") -> _T_co:
        """The value; a violation when the call failed. ``what`` says what the call was for."""
        if self.value is None:
            raise Violation(f"{self.rpc}{f' ({what})' if what else ''} was to succeed, but answered {self.outcome}")
        return self.value

    def expect_refusal(self, what: str) -> None:
        """A violation when the call was answered OK."""
        if self.is_ok:
            raise Violation(f"{self.rpc} with {what} must be an error, but was answered OK")

    def map(self, read: Callable[[_T_co], _U]) -> Answer[_U]:
        """The same answer with its value as something else."""
        value = None if self.value is None else read(self.value)
        return Answer(rpc=self.rpc, value=value, status=self.status, error=self.error, seconds=self.seconds)


class Probe:
    """Makes calls over one connection as one release would make them, and records them."""

    def __init__(self, connection: Connection, release: Release, record: list[Exchange] | None = None) -> None:
        self.connection = connection
        self.release = release
        self._record: list[Exchange] = [] if record is None else record
        self.slowest: dict[str, list[float]] = {}  # the two slowest of each call, in seconds, the slowest last

    def as_release(self, release: Release) -> Probe:
        """The same connection and the same record, as another release."""
        probe = Probe(self.connection, release, self._record)
        probe.slowest = self.slowest
        return probe

    async def call(self, rpc: str, request: Message) -> Answer[Message]:
        """One call. A failure is an answer like any other; nothing is raised but a cancellation."""
        started = time.monotonic()
        token = _is_probing.set(True)
        value, status, error = None, StatusCode.OK, ""
        try:
            value = await self.connection.call(RPCS[rpc], request)
        except CloudgraftError as failure:
            status, error = status_of(failure), failure.message
            if status is StatusCode.OK:  # an answer that could not be decoded
                status = StatusCode.INTERNAL
        except asyncio.CancelledError:
            self._keep(rpc, request, "(given up by the client)", time.monotonic() - started, is_failed=True)
            raise
        finally:
            _is_probing.reset(token)
        seconds = time.monotonic() - started
        self.slowest[rpc] = sorted([*self.slowest.get(rpc, []), seconds])[-2:]
        answered = f"{status.name}: {shortened(error)}" if value is None else shown(value)
        self._keep(rpc, request, answered, seconds, is_failed=value is None)
        return Answer(rpc=rpc, value=value, status=status, error=error, seconds=seconds)

    async def give_up(self, rpc: str, request: Message, seconds: float) -> Answer[Message] | None:
        """One call that the client cancels after some time; None unless the answer was there before that."""
        task = asyncio.ensure_future(self.call(rpc, request))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return None
        finally:
            task.cancel()

    def take_exchanges(self) -> tuple[Exchange, ...]:
        """Returns and forgets the calls since the last time: of many, the first and the latest."""
        taken = list(self._record)
        self._record.clear()
        return tuple(taken if len(taken) <= _KEPT else [*taken[: _KEPT // 2], *taken[-_KEPT // 2 :]])

    def _keep(self, rpc: str, request: Message, answered: str, seconds: float, *, is_failed: bool) -> None:
        exchange = Exchange(rpc=rpc, sent=shown(request), answered=answered, seconds=seconds, is_failed=is_failed)
        self._record.append(exchange)


class _NotExpected(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (_is_probing.get() and hasattr(record, "rpc"))


@contextlib.contextmanager
def expected_failures() -> Iterator[None]:
    """Keeps the kit's own failed calls out of the client's log while it runs."""
    log, silence = logging.getLogger("cloudgraft.client"), _NotExpected()
    log.addFilter(silence)
    try:
        yield
    finally:
        log.removeFilter(silence)


# -- the 15 calls, with values instead of messages ---------------------------------------------------------------------
# Each returns an :class:`Answer`.


_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An instance exactly as the server lists it, invalid values included."""

    id: str
    state: int
    has_error: bool
    code: str
    message: str
    error_class: int

    @property
    def is_deleting(self) -> bool:
        """Whether it is being deleted: it does not count any more."""
        return self.state == InstanceState.DELETING.value

    @property
    def is_creating(self) -> bool:
        """Not there yet."""
        return self.state == InstanceState.CREATING.value

    @property
    def is_failed(self) -> bool:
        """The only form of an error that the autoscaler acts on (R34)."""
        return self.is_creating and self.has_error and self.code != ""


class Calls:
    """The calls of one release over one probe."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    @property
    def release(self) -> Release:
        """The release that makes the calls."""
        return self.probe.release

    def as_release(self, release: Release) -> Calls:
        """The same calls as another release would make them."""
        return Calls(self.probe.as_release(release))

    # -- the server as a whole ---------------------------------------------------------------------------------------

    async def node_groups(self) -> Answer[tuple[NodeGroup, ...]]:
        """All groups, in the server's order."""
        answer = await self._ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse)
        return answer.map(lambda found: tuple(map(wire.node_group_from_pb, found.nodeGroups)))

    async def group_for_node(self, node: NodeRef) -> Answer[NodeGroup]:
        """The group of a node; one without an id for "not managed"."""
        request = pb.NodeGroupForNodeRequest(node=wire.node_ref_to_pb(node))
        answer = await self._ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return answer.map(lambda found: wire.node_group_from_pb(found.nodeGroup))

    async def refresh(self) -> Answer[Message]:
        """Begins a loop."""
        return await self.probe.call("Refresh", pb.RefreshRequest())

    async def cleanup(self) -> Answer[Message]:
        """Ends a connection as an autoscaler that stops."""
        return await self.probe.call("Cleanup", pb.CleanupRequest())

    async def gpu_label(self) -> Answer[str]:
        """The label of nodes with a GPU."""
        answer = await self._ask("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse)
        return answer.map(lambda found: found.label)

    async def gpu_types(self) -> Answer[frozenset[str]]:
        """The kinds of GPUs."""
        answer = await self._ask(
            "GetAvailableGPUTypes", pb.GetAvailableGPUTypesRequest(), pb.GetAvailableGPUTypesResponse
        )
        return answer.map(lambda found: frozenset(found.gpuTypes))

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> Answer[float]:
        """The price of a node for a period."""
        request = self.release.node_price_request(node, start, end)
        answer = await self._ask("PricingNodePrice", request, pb.PricingNodePriceResponse)
        return answer.map(lambda found: found.price)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> Answer[float]:
        """The price of a pod for a period."""
        request = self.release.pod_price_request(pod, start, end)
        answer = await self._ask("PricingPodPrice", request, pb.PricingPodPriceResponse)
        return answer.map(lambda found: found.price)

    # -- one group ---------------------------------------------------------------------------------------------------

    async def target(self, group: str) -> Answer[int]:
        """NodeGroupTargetSize."""
        request = pb.NodeGroupTargetSizeRequest(id=group)
        answer = await self._ask("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse)
        return answer.map(lambda found: found.targetSize)

    async def instances(self, group: str) -> Answer[tuple[Listed, ...]]:
        """NodeGroupNodes."""
        answer = await self._ask("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group), pb.NodeGroupNodesResponse)
        return answer.map(lambda found: tuple(map(_listed, found.instances)))

    async def increase(self, group: str, delta: int) -> Answer[Message]:
        """NodeGroupIncreaseSize."""
        return await self.probe.call("NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta))

    async def delete(self, group: str, nodes: Sequence[NodeRef]) -> Answer[Message]:
        """NodeGroupDeleteNodes."""
        return await self.probe.call("NodeGroupDeleteNodes", delete_request(group, nodes))

    async def decrease(self, group: str, delta: int) -> Answer[Message]:
        """NodeGroupDecreaseTargetSize."""
        request = pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta)
        return await self.probe.call("NodeGroupDecreaseTargetSize", request)

    async def template(self, group: str) -> Answer[pb.NodeGroupTemplateNodeInfoResponse]:
        """NodeGroupTemplateNodeInfo, to be read by one release or another."""
        request = pb.NodeGroupTemplateNodeInfoRequest(id=group)
        return await self._ask("NodeGroupTemplateNodeInfo", request, pb.NodeGroupTemplateNodeInfoResponse)

    async def options(self, group: str, defaults: Options) -> Answer[pb.NodeGroupAutoscalingOptionsResponse]:
        """NodeGroupGetOptions with the defaults in this release's fields, to be read by the same release."""
        request = self.release.options_request(group, defaults)
        return await self._ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)

    async def _ask(self, rpc: str, request: Message, kind: type[_M]) -> Answer[_M]:
        def typed(message: Message) -> _M:
            assert isinstance(message, kind)  # noqa: S101 - both come from the same table
            return message

        return (await self.probe.call(rpc, request)).map(typed)


def delete_request(group: str, nodes: Sequence[NodeRef]) -> pb.NodeGroupDeleteNodesRequest:
    """The message of a deletion."""
    return pb.NodeGroupDeleteNodesRequest(id=group, nodes=[wire.node_ref_to_pb(node) for node in nodes])


def _listed(message: pb.Instance) -> Listed:
    info = message.status.errorInfo
    return Listed(
        id=message.id,
        state=message.status.instanceState,
        has_error=message.status.HasField("errorInfo") and info.ByteSize() > 0,
        code=info.errorCode,
        message=info.errorMessage,
        error_class=info.instanceErrorClass,
    )
