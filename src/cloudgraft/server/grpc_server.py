"""Serves the autoscaler's 15 calls over grpcio."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.clients import client_names
from cloudgraft.server.listener import Access, Listener, abort
from cloudgraft.server.tls import ReloadingCredentials
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from cloudgraft.wire.rpc import Rpc

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[bytes, Context], Awaitable[bytes]]


class GrpcServer:
    """One listening address for one service."""

    def __init__(
        self, service: CloudProviderService, access: Access, *, trouble: Callable[[], str] | None = None
    ) -> None:
        """Prepares a listener; :meth:`start` opens it. ``trouble`` returns why not to call here, for health."""
        self._service = service
        handlers = {rpc.name: _method_handler(self._handler(rpc)) for rpc in RPCS.values()}
        self._listener = Listener(
            grpc.method_handlers_generic_handler(SERVICE, handlers),
            access,
            service_name=SERVICE,
            name="autoscaler",
            metrics=service.metrics.listeners,
            trouble=trouble,
        )

    @property
    def address(self) -> str:
        """The address it listens on, with the real port."""
        return self._listener.address

    @property
    def tls(self) -> ReloadingCredentials | None:
        """The certificate in use."""
        return self._listener.tls

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port is not available."""
        await self._listener.start()

    async def drop_connections(self) -> None:
        """Ends all connections at once, calls in flight with UNAVAILABLE, and listens again on the same address.

        Changes under way continue; only their callers do not get the result.
        """
        await self._listener.drop_connections()

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those in flight at most ``grace`` seconds to end, then closes."""
        deadline = time.monotonic() + grace
        await self._listener.stop(grace)
        await self._service.close(max(0.0, deadline - time.monotonic()))

    def _handler(self, rpc: Rpc) -> Handler:
        service = self._service

        async def respond(data: bytes, context: Context) -> bytes:
            call = Call(
                context.peer(), lambda: ", ".join(client_names(context.auth_context())), context.time_remaining()
            )
            try:
                return await service.handle_bytes(rpc.name, data, call)
            except CloudgraftError as error:
                await abort(context, error)
                raise  # not reached: abort() raises

        return respond


def _method_handler(handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
    # Bytes in, bytes out: a message that cannot be parsed is then answered like any other bad input.
    return grpc.unary_unary_rpc_method_handler(handler)
