"""Makes OpenTelemetry's spans behind the seam of :mod:`cloudgraft.sdk.common.tracing`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from cloudgraft._version import __version__
from cloudgraft.sdk.common.tracing import TRACEPARENT, About, Kind, Span, Tracer, Value
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.tracing.exporter import Collector, Outbox

log = logging.getLogger("cloudgraft.tracing")

_END: Final = 2.0  # seconds that the last spans get when the process stops, and as many to give them up
_LONGEST: Final = 1024  # characters of a value
_READ: Final = "cloudgraft.read"
_KINDS: Final = {
    Kind.INTERNAL: trace.SpanKind.INTERNAL,
    Kind.SERVER: trace.SpanKind.SERVER,
    Kind.CLIENT: trace.SpanKind.CLIENT,
}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The shares of traces that are recorded. A caller that sends a traceparent decides for itself."""

    ratio: float = 1.0  # of orders and calls that change something
    read_ratio: float = 0.0  # of calls that only read


class OtlpTracer(Tracer):
    """Begins spans, and sends them to a collector. Not OpenTelemetry's global tracer: libraries of clouds that use that
    one could put the content of requests into their spans.
    """

    def __init__(
        self,
        collector: Collector,
        sampling: Sampling,
        *,
        service: str,
        cluster: str,
        on_spans: Callable[[str, int], None],
    ) -> None:
        """Raises CloudgraftError if a file of ``collector`` cannot be used. For ``on_spans`` see SpanCounts."""
        about = {
            "service.name": service,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            "cloudgraft.cluster": cluster,
        }
        self._outbox = Outbox(collector, on_spans)
        provider = TracerProvider(
            sampler=ParentBased(_BySubject(sampling)),
            resource=Resource.create(about),
            shutdown_on_exit=False,  # running() ends it, within a time limit
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST, max_events=64, max_span_attributes=32),
        )
        provider.add_span_processor(self._outbox)
        self._tracer = provider.get_tracer("cloudgraft", __version__)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends what waits when the block ends, within a few seconds."""
        try:
            yield
        finally:
            self._outbox.close(_END)

    def begin(
        self, name: str, about: About, kind: Kind = Kind.INTERNAL, *, traceparent: str = "", is_read: bool = False
    ) -> Span:
        """Begins a trace, or continues the one of a valid ``traceparent``."""
        context = _PROPAGATOR.extract({TRACEPARENT: traceparent}, Context()) if traceparent else Context()
        attributes = {**_clean(about), _READ: True} if is_read else _clean(about)
        return _started(self._tracer, name, context, kind, attributes)


class _Span(Span):
    """One span of OpenTelemetry."""

    __slots__ = ("_is_sampled", "_span", "_tracer")

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._is_sampled = span.is_recording()

    @property
    def is_sampled(self) -> bool:
        return self._is_sampled

    @property
    def trace_id(self) -> str:
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    @property
    def span_id(self) -> str:
        return trace.format_span_id(self._span.get_span_context().span_id)

    @property
    def traceparent(self) -> str:
        flags = int(self._span.get_span_context().trace_flags)
        return f"00-{self.trace_id}-{self.span_id}-{flags:02x}"

    def child(self, name: str, about: About, kind: Kind = Kind.INTERNAL) -> Span:
        if not self._is_sampled:
            return self  # it records nothing, so it can stand for all its children
        context = trace.set_span_in_context(self._span, Context())
        return _started(self._tracer, name, context, kind, _clean(about))

    def describe(self, about: About) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_clean(about))

    def event(self, name: str, about: About) -> None:
        if self._span.is_recording():
            self._span.add_event(name, _clean(about))

    def fail(self, kind: str, message: str = "") -> None:
        if self._span.is_recording():
            self._span.set_attributes({"error.type": kind})
            self._span.set_status(trace.StatusCode.ERROR, _clean_value(message) or None)

    def end(self) -> None:
        if self._span.is_recording():
            self._span.end()


def _started(tracer: trace.Tracer, name: str, context: Context, kind: Kind, attributes: Mapping[str, Value]) -> Span:
    """Begins a span. A failure of the library costs the span and not the call that it is about."""
    try:
        return _Span(tracer, tracer.start_span(name, context, _KINDS[kind], attributes))
    except Exception:
        log.exception("a span cannot be begun")
        return _Span(tracer, trace.INVALID_SPAN)


class _BySubject(Sampler):
    """Samples one share of the traces that only read, and another of all others."""

    def __init__(self, sampling: Sampling) -> None:
        self._orders = TraceIdRatioBased(sampling.ratio)
        self._reads = TraceIdRatioBased(sampling.read_ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> SamplingResult:
        is_read = attributes is not None and _READ in attributes
        chosen = self._reads if is_read else self._orders
        return chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"orders {self._orders.get_description()}, reads {self._reads.get_description()}"


def _clean(about: About) -> Mapping[str, Value]:
    return {key: _clean_value(value) if isinstance(value, str) else value for key, value in about.items()}


def _clean_value(text: str) -> str:
    """Without secrets, as in the log. Cut afterwards: half of a secret would not be recognized."""
    return redacted(text)[:_LONGEST]
