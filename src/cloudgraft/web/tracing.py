"""Runs each HTTP request in a span, which continues the trace of its caller."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloudgraft.sdk.common.tracing import TRACEPARENT, Kind, Span, Tracer, inside

_HEADER: Final = TRACEPARENT.encode()
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REFRESH: Final = "/refresh"  # a change by its method alone: the autoscaler asks for one in every loop


class TracedRequests:
    """An application around another."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        span = self._begin(scope)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note(span, message["status"])
            await send(message)

        try:
            with inside(span):
                await self._app(scope, receive, answer)
        finally:
            span.end()

    def _begin(self, scope: Scope) -> Span:
        method, path = str(scope["method"]), str(scope["path"])
        found = (value for name, value in scope["headers"] if name == _HEADER)
        traceparent = next(found, b"").decode("latin-1")
        is_read = method not in _CHANGES or path.endswith(_REFRESH)
        about = {"http.request.method": method, "url.path": path}
        return self._tracer.begin(f"HTTP {method}", about, Kind.SERVER, traceparent=traceparent, is_read=is_read)


def _note(span: Span, status: int) -> None:
    span.describe({"http.response.status_code": status})
    if status >= 500:
        span.fail(str(status))
