"""Which clients may call: by the names in their certificates, before any method runs or any body is read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

import grpc
import grpc.aio

from cloudgraft.certs.names import names_in_pem
from cloudgraft.net.connections import RateLimitedLog
from cloudgraft.server.connection_watch import ConnectionWatch

__all__ = ["UnknownMethods", "only_message"]


# -- Unary methods whose handlers are asked before the body of a call is read ------------------------------------------
# gRPC reads the body of a unary call first. A client that sends none would wait there, unseen, with as many calls as it
# likes. A method that is served as one with a stream of requests is asked at once, and reads the one message itself.


Context = grpc.aio.ServicerContext[Any, Any]


async def only_message(context: Context) -> Any:
    """The one message of a call; ends the call when there is none."""
    message = await context.read()
    if message is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a message")
    return message


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers calls of methods that no other handler of a server has; add it last.

    gRPC answers them too, but does not check the client. A client that may not call could flood a server with them, and
    no metric or log line would show it.
    """

    def __init__(self, admit: Callable[[Context, str], Awaitable[None]]) -> None:
        """``admit`` ends the call of a client that may not call; it gets the method's name too."""
        self._admit = admit

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """One for each call: clients invent the names, so nothing is kept by them."""
        method = handler_call_details.method

        async def refuse(_requests: object, context: Context) -> None:
            await self._admit(context, method)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")  # as gRPC says it

        return grpc.stream_stream_rpc_method_handler(refuse)


log = logging.getLogger("cloudgraft.server")

_MOST_NAMED: Final = 100  # clients that have a log line of their own every minute; the others share one


def client_names(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The common name and the DNS and URI names of a client's certificate; empty without TLS."""
    pem = next(iter(auth_context.get("x509_pem_cert", ())), b"")
    return names_in_pem(pem) if pem else ()


class AllowedClients:
    """Lets a call through only when one of the names in the client's certificate is an allowed one.

    It decides when the headers of a call are there (:mod:`cloudgraft.server.headers_first`).

    Not an interceptor: gRPC would build the guarded method anew for each call, which takes a tenth of a call's time.
    """

    def __init__(self, allowed: Collection[str], watch: ConnectionWatch) -> None:
        """No names mean that every client may call. ``watch`` is told where each call came from."""
        self._allowed = frozenset(allowed)
        self._watch = watch
        self._log = RefusalLog()

    def guarded(self, service: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """The same service, with the check in front of each method."""
        return _Guarded(service, self._guard)

    def unknown_methods(self) -> grpc.GenericRpcHandler:
        """Answers calls of methods that no service has, with the same check."""
        return UnknownMethods(self._admit)

    async def _admit(self, context: Context, method: str) -> None:
        if self._allowed and self._allowed.isdisjoint(names := client_names(context.auth_context())):
            await self._refused(names, context, method)
        self._watch.trust(context.peer())

    def _guard(self, handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
        # One of the four is set; gRPC's types describe only the one with threads, not the asyncio one.
        inner: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        allowed, trust, refused, is_stream = self._allowed, self._watch.trust, self._refused, handler.request_streaming

        async def single(requests: Any, context: Context) -> Any:
            if allowed and allowed.isdisjoint(names := client_names(context.auth_context())):
                await refused(names, context, method)
            trust(context.peer())
            return await inner(requests if is_stream else await only_message(context), context)

        async def stream(requests: Any, context: Context) -> Any:
            if allowed and allowed.isdisjoint(names := client_names(context.auth_context())):
                await refused(names, context, method)
            trust(context.peer())
            result = inner(requests if is_stream else await only_message(context), context)
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
        self._watch.refused(peer)
        self._log.write(names, peer, method)
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the client certificate ({', '.join(names) or 'without a name'}) is not in the server's allowedClients",
        )


class RefusalLog:
    """Logs clients that are refused, once a minute each: a wrongly configured autoscaler calls hundreds of times."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, ...], RateLimitedLog] = {}

    def write(self, names: tuple[str, ...], peer: str, method: str) -> None:
        """Logs one refused call; ``names`` are those of the client's certificate."""
        whose = names if names in self._logs or len(self._logs) < _MOST_NAMED else ()
        self._logs.setdefault(whose, RateLimitedLog(log, per_minute=1)).warning(
            "refused a client that is not in allowedClients: %s",
            ", ".join(names) or "a certificate without a name",
            extra={"peer": peer, "certificate": names, "rpc": method},
        )


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
