"""Serves the autoscaler's 15 calls over grpcio."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cloudgraft.sdk.common.tracing import TRACEPARENT
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.clients import client_names
from cloudgraft.server.listener import Access, Listener, abort
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from cloudgraft.wire.rpc import Rpc

Context = grpc.aio.ServicerContext[bytes, bytes]


class GrpcServer(Listener):
    """One listening address for one service.

    Changes under way continue when the connections are dropped; only their callers do not get the result.
    """

    def __init__(
        self, service: CloudProviderService, access: Access, *, trouble: Callable[[], str] | None = None
    ) -> None:
        """Prepares a listener; :meth:`start` opens it. ``trouble`` returns why not to call here, for health."""
        self._service = service
        # Bytes in, bytes out: a message that cannot be parsed is then answered like any other bad input.
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            rpc.name: grpc.unary_unary_rpc_method_handler(self._responder(rpc)) for rpc in RPCS.values()
        }
        super().__init__(
            grpc.method_handlers_generic_handler(SERVICE, handlers),
            access,
            service_name=SERVICE,
            name="autoscaler",
            metrics=service.metrics.listeners,
            trouble=trouble,
        )

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those in flight at most ``grace`` seconds to end, then closes."""
        deadline = time.monotonic() + grace
        await super().stop(grace)
        await self._service.close(max(0.0, deadline - time.monotonic()))

    def _responder(self, rpc: Rpc) -> Callable[[bytes, Context], Awaitable[bytes]]:
        service = self._service

        async def respond(data: bytes, context: Context) -> bytes:
            call = Call(
                context.peer(),
                lambda: ", ".join(client_names(context.auth_context())),
                context.time_remaining(),
                lambda: _traceparent(context),
            )
            try:
                return await service.handle_bytes(rpc.name, data, call)
            except CloudgraftError as error:
                await abort(context, error)
                raise  # not reached: abort() raises

        return respond


def _traceparent(context: Context) -> str:
    """The W3C header of the caller's trace; empty for none."""
    found = (value for key, value in context.invocation_metadata() or () if key == TRACEPARENT)
    value = next(found, "")
    return value if isinstance(value, str) else ""
