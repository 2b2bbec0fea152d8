"""Records the calls over the wire, with their outcome and duration."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from google.protobuf.message import Message

from cloudgraft.client import CloudConfig, Connection
from cloudgraft.client.errors import status_of
from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.wire.rpc import Rpc

_TEMPLATE_NODE = "template-node-for-"  # the autoscaler's name for a node of which it only asks the price (R81)
_KEPT = 200  # calls to show; more than one loop makes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call as the client saw it."""

    rpc: str
    subject: str  # the group or the node it was about, if any
    code: str
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcFigures:
    """All calls of one kind."""

    rpc: str
    count: int
    failed: int
    p50_milliseconds: float


class CallRecorder:
    """Remembers the latest calls, and for all of them the kind and the time they took."""

    def __init__(self) -> None:
        self.latest: deque[CallRecord] = deque(maxlen=_KEPT)
        self._milliseconds: defaultdict[str, list[float]] = defaultdict(list)
        self._failed: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many calls were made."""
        return sum(map(len, self._milliseconds.values()))

    def add(self, record: CallRecord) -> None:
        """Records a call."""
        self.latest.append(record)
        self._milliseconds[record.rpc].append(record.milliseconds)
        self._failed[record.rpc] += record.code != StatusCode.OK.name

    def figures(self) -> tuple[RpcFigures, ...]:
        """The figures of each kind of call, the most frequent first."""
        kinds = sorted(self._milliseconds.items(), key=lambda item: (-len(item[1]), item[0]))
        return tuple(
            RpcFigures(rpc=rpc, count=len(took), failed=self._failed[rpc], p50_milliseconds=statistics.median(took))
            for rpc, took in kinds
        )


class RecordingConnection(Connection):
    """The client's connection, which records every call."""

    def __init__(self, config: CloudConfig, recorder: CallRecorder) -> None:
        super().__init__(config)
        self._recorder = recorder

    async def call(self, rpc: Rpc, request: Message) -> Message:
        """Makes the call as always, and records its success or failure."""
        started, code = time.perf_counter(), StatusCode.OK
        try:
            return await super().call(rpc, request)
        except CloudgraftError as error:
            code = status_of(error)
            raise
        finally:
            took = (time.perf_counter() - started) * 1000
            self._recorder.add(CallRecord(rpc=rpc.name, subject=_subject(request), code=code.name, milliseconds=took))


def _subject(request: Message) -> str:
    node = getattr(request, "node", None)
    if node is None:
        return str(getattr(request, "id", ""))
    name = str(node.name)
    if name.startswith(_TEMPLATE_NODE):
        return name.removeprefix(_TEMPLATE_NODE).rpartition("-")[0]
    return name.rpartition("/")[2]  # a made-up node is named by its provider id
