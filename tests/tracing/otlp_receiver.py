"""An OTLP receiver: takes spans over gRPC as a collector does, and can hang or refuse."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.conditions import until


@dataclass(frozen=True)
class Received:
    """One span as it came."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    about: Mapping[str, object]
    events: Mapping[str, Mapping[str, object]]
    is_failed: bool
    message: str
    began: int
    ended: int
    resource: Mapping[str, object] = field(repr=False)


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that keeps what it gets."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.spans: list[Received] = []
        self.calls: list[Mapping[str, str]] = []  # the headers of each call
        self.refuses: grpc.StatusCode | None = None
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        if credentials is None:
            self._port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self._port = self._server.add_secure_port("127.0.0.1:0", credentials)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def hang(self) -> None:
        """Answers no call until the end, and takes nothing."""
        self._may_answer.clear()

    def Export(  # noqa: N802 - gRPC's name
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        with self._lock:
            self.calls.append({key: str(value) for key, value in context.invocation_metadata()})
        self._may_answer.wait()
        if self.refuses is not None:
            context.abort(self.refuses, "not now")
        with self._lock:
            for resource in request.resource_spans:
                about = _attributes(resource.resource.attributes)
                self.spans += [_received(span, about) for scope in resource.scope_spans for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def named(self, name: str, **about: str) -> list[Received]:
        """The spans of that name, with these attributes of ours."""
        with self._lock:
            found = [span for span in self.spans if span.name == name]
        wanted = {f"cloudgraft.{key}": value for key, value in about.items()}
        return [span for span in found if wanted.items() <= span.about.items()]

    async def has(self, name: str, count: int = 1, **about: str) -> list[Received]:
        """Waits for so many spans of that name."""
        await until(lambda: len(self.named(name, **about)) >= count, what=f"{count} spans {name}")
        return self.named(name, **about)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_answer.set()
        self._server.stop(0).wait()


def _received(span: trace_pb2.Span, resource: Mapping[str, object]) -> Received:
    return Received(
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        about=_attributes(span.attributes),
        events={event.name: _attributes(event.attributes) for event in span.events},
        is_failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        message=span.status.message,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        resource=resource,
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
