"""Which clients may call: by the names in their certificates, before any method runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import grpc
from prometheus_client import Counter

from cloudgraft.certs.client_names import names_in_pem

log = logging.getLogger("cloudgraft.server")

_TELL_EVERY = 60.0  # seconds


def client_names(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The common name and the DNS and URI names of a client's certificate; empty without TLS."""
    pem = next(iter(auth_context.get("x509_pem_cert", ())), b"")
    return names_in_pem(pem) if pem else ()


class AllowedClients:
    """Lets a call through only when one of the names in the client's certificate is an allowed one.

    Not an interceptor: gRPC would build the guarded method anew for each call, which takes a tenth of a call's time.
    """

    def __init__(self, allowed: Collection[str], refused: Counter) -> None:
        self._allowed = frozenset(allowed)
        self._refused = refused
        self._told: dict[tuple[str, ...], float] = {}

    def guarded(self, service: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """The same service, with the check in front of each method."""
        return _Guarded(service, self._guard)

    def _tell(self, names: tuple[str, ...], peer: str, method: str) -> None:
        """Once a minute for each client: a wrongly configured autoscaler calls hundreds of times."""
        now = time.monotonic()
        level = logging.WARNING if now - self._told.get(names, -_TELL_EVERY) >= _TELL_EVERY else logging.DEBUG
        if level == logging.WARNING:
            self._told = {told: at for told, at in self._told.items() if now - at < _TELL_EVERY}
            self._told[names] = now
        log.log(
            level,
            "refused a client that is not in allowedClients: %s",
            ", ".join(names) or "a certificate without a name",
            extra={"peer": peer, "certificate": names, "rpc": method},
        )

    def _guard(self, handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
        # One of the four is set; gRPC's types describe only the one with threads, not the asyncio one.
        inner: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        async def check(context: grpc.aio.ServicerContext[Any, Any]) -> None:
            names = client_names(context.auth_context())
            if self._allowed.isdisjoint(names):
                self._refused.inc()
                self._tell(names, context.peer(), method)
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"the client certificate ({', '.join(names) or 'without a name'}) is not in the server's "
                    "allowedClients",
                )

        async def single(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            await check(context)
            return await inner(request, context)

        async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            await check(context)
            result = inner(request, context)
            if hasattr(result, "__aiter__"):
                async for message in result:
                    yield message
            else:  # a handler that writes to the context by itself
                await result

        return _like(handler, stream if handler.response_streaming else single)


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


def _like(handler: grpc.RpcMethodHandler[Any, Any], behaviour: Callable[..., Any]) -> grpc.RpcMethodHandler[Any, Any]:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
