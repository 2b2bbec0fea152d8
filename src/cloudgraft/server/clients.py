"""Which clients may call: by the names in their certificates, before any method runs or any body is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import grpc
import grpc.aio

from cloudgraft.certs.client_names import names_in_pem
from cloudgraft.net.metrics import NOT_ALLOWED, Refuse
from cloudgraft.net.rate_limited_log import RateLimitedLog
from cloudgraft.server.connection_watch import ConnectionWatch


log = logging.getLogger("cloudgraft.server")

_MOST_NAMED: Final = 100  # clients that have a log line of their own every minute; the others share one
Context = grpc.aio.ServicerContext[Any, Any]


def client_names(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The common name and the DNS and URI names of a client's certificate; empty without TLS."""
    pem = next(iter(auth_context.get("x509_pem_cert", ())), b"")
    return names_in_pem(pem) if pem else ()


class AllowedClients:
    """Lets a call through only when one of the names in the client's certificate is an allowed one.

    It decides when the headers of a call are there. gRPC reads the body of a unary call before it asks a handler, and a
    client that sends none would wait there, unseen, with as many calls as it likes. So each unary method is served as
    one that reads a stream: its handler is asked first, and reads the one message itself.

    Not an interceptor: gRPC would build the guarded method anew for each call, which takes a tenth of a call's time.
    """

    def __init__(self, allowed: Collection[str], refuse: Refuse, *, watch: ConnectionWatch | None = None) -> None:
        """No names mean that every client may call. ``watch`` is told where each call came from."""
        self._allowed = frozenset(allowed)
        self._refuse = refuse
        self._watch = watch
        self._logs: dict[tuple[str, ...], RateLimitedLog] = {}

    def guarded(self, service: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """The same service, with the check in front of each method."""
        return _Guarded(service, self._guard)

    def _guard(self, handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
        # One of the four is set; gRPC's types describe only the one with threads, not the asyncio one.
        inner: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        allowed, refused, is_stream = self._allowed, self._refused, handler.request_streaming
        trust = self._watch.trust if self._watch is not None else None

        async def admitted(requests: Any, context: Context) -> Any:
            """The call's only message, or its stream of them; raises for a client that may not call."""
            if allowed and allowed.isdisjoint(names := client_names(context.auth_context())):
                await refused(names, context, method)
            if trust is not None:
                trust(context.peer())
            return requests if is_stream else await _only_message(context)

        async def single(requests: Any, context: Context) -> Any:
            return await inner(await admitted(requests, context), context)

        async def stream(requests: Any, context: Context) -> Any:
            result = inner(await admitted(requests, context), context)
            if hasattr(result, "__aiter__"):
                async for message in result:
                    yield message
            else:  # a handler that writes to the context by itself
                await result

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                stream, handler.request_deserializer, handler.response_serializer
            )
        return grpc.stream_unary_rpc_method_handler(single, handler.request_deserializer, handler.response_serializer)

    async def _refused(self, names: tuple[str, ...], context: Context, method: str) -> None:
        peer = context.peer()
        self._refuse(NOT_ALLOWED)
        if self._watch is not None:
            self._watch.refused(peer)
        told = ", ".join(names)
        self._log_of(names).warning(
            "refused a client that is not in allowedClients: %s",
            told or "a certificate without a name",
            extra={"peer": peer, "certificate": names, "rpc": method},
        )
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the client certificate ({told or 'without a name'}) is not in the server's allowedClients",
        )

    def _log_of(self, names: tuple[str, ...]) -> RateLimitedLog:
        """Once a minute for each client: a wrongly configured autoscaler calls hundreds of times."""
        whose = names if names in self._logs or len(self._logs) < _MOST_NAMED else ()
        return self._logs.setdefault(whose, RateLimitedLog(log, per_minute=1))


async def _only_message(context: Context) -> Any:
    message = await context.read()
    if message is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a message")
    return message


class _Guarded(grpc.GenericRpcHandler):
    def __init__(
        self,
        inner: grpc.GenericRpcHandler,
        guard: Callable[[grpc.RpcMethodHandler[Any, Any], str], grpc.RpcMethodHandler[Any, Any]],
    ) -> None:
        self._inner = inner
        self._guard = guard
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        if method not in self._methods:
            handler = self._inner.service(handler_call_details)
            if handler is None:  # no such method: gRPC answers that by itself
                return None
            self._methods[method] = self._guard(handler, method)
        return self._methods[method]


class GuardedServer:
    """Stands in for a server while a service adds itself to it, so that no service is left unguarded."""

    def __init__(self, server: grpc.aio.Server, allowed: AllowedClients) -> None:
        self._server = server
        self._allowed = allowed

    def add_generic_rpc_handlers(self, services: Iterable[grpc.GenericRpcHandler]) -> None:
        """What generated code calls."""
        self._server.add_generic_rpc_handlers(tuple(self._allowed.guarded(service) for service in services))

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """What generated code calls too. grpc.aio makes no use of it, and it would be a way round the guard."""
