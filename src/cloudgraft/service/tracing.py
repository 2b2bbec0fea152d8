"""Runs the calls of the autoscaler in spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import Message

from cloudgraft.sdk.common.tracing import GROUP, Kind, Tracer, Value, inside
from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.wire.externalgrpc import SERVICE

_CHANGES: Final = frozenset({"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"})
# What OpenTelemetry counts as a failure of a server. The other codes are about the request.
_FAILURES: Final = frozenset(
    {StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL, StatusCode.UNAVAILABLE}
)


@contextmanager
def call_span(tracer: Tracer, rpc: str, request: Message, traceparent: str) -> Iterator[None]:
    """Runs the block as one call, in the caller's trace if it has one."""
    about: dict[str, Value] = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": rpc}
    for field, key in (("id", GROUP), ("delta", "cloudgraft.delta")):
        if field in request.DESCRIPTOR.fields_by_name:
            about[key] = getattr(request, field)
    is_read = rpc not in _CHANGES
    span = tracer.begin(f"{SERVICE}/{rpc}", about, Kind.SERVER, traceparent=traceparent, is_read=is_read)
    try:
        with inside(span):
            yield
    except CloudgraftError as error:
        span.describe({"rpc.grpc.status_code": error.status.value, "error.type": error.slug})
        if error.status in _FAILURES:
            span.fail(error.slug, error.message)
        raise
    except asyncio.CancelledError:
        span.describe({"rpc.grpc.status_code": StatusCode.CANCELLED.value, "error.type": "cancelled"})
        raise
    finally:
        span.end()
