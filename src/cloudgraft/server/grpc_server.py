"""The gRPC listener: carries the service's 15 calls, with health, reflection, mTLS and a graceful stop."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, StatusCode, UnavailableError
from cloudgraft.server.clients import AllowedClients, client_names
from cloudgraft.server.listen import check_exposure, has_port
from cloudgraft.server.tls import ReloadingCredentials, TlsFiles
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS, SERVICE, Rpc

log = logging.getLogger("cloudgraft.server")

_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = (
    # Without this a second server on the same port would start, and each would get a part of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    # The autoscaler's background goroutines may idle for minutes between calls; do not take its pings for an attack.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[bytes, Context], Awaitable[bytes]]


class GrpcServer:
    """One listening address for one service."""

    def __init__(
        self,
        service: CloudProviderService,
        *,
        listen: str = "127.0.0.1:8086",
        tls: TlsFiles | None = None,
        credentials: grpc.ServerCredentials | None = None,
        allowed_clients: Collection[str] = (),
        insecure: bool = False,
    ) -> None:
        """Prepares a listener; :meth:`start` opens it.

        ``tls`` turns mTLS on, and ``allowed_clients`` names who may call (empty: everyone with a certificate of the
        client authority). Without TLS only a loopback address is accepted, unless ``insecure`` says otherwise.
        ``credentials`` are ready-made ones instead of ``tls``.
        """
        check_exposure(listen, secure=tls is not None or credentials is not None, insecure=insecure)
        if allowed_clients and tls is None:
            raise InvalidArgumentError("allowedClients needs TLS: without it a client has no name")
        self._service = service
        self._listen = listen
        self._port = 0
        self.tls = ReloadingCredentials(tls) if tls else None
        self._credentials = self.tls.server_credentials() if self.tls else credentials
        self._interceptors = (
            (AllowedClients(allowed_clients, service.metrics.refused_clients),) if allowed_clients else ()
        )
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        return self._listen.rpartition(":")[0] + f":{self._port}" if has_port(self._listen) else self._listen

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port cannot be had."""
        server = grpc.aio.server(options=_OPTIONS, interceptors=self._interceptors)
        handlers = {rpc.name: _method_handler(self._handler(rpc)) for rpc in RPCS.values()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        try:
            if self._credentials is None:
                self._port = server.add_insecure_port(self._listen)
            else:
                self._port = server.add_secure_port(self._listen, self._credentials)
        except RuntimeError as error:
            raise UnavailableError(
                f"cannot listen on {self._listen}: is another program using it, or is it not an address of this host?"
            ) from error
        await server.start()
        self._server = server
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, lets those in flight end for at most ``grace`` seconds, then closes."""
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        await self._service.close(grace)

    async def _set_health(self, status: int) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)

    def _handler(self, rpc: Rpc) -> Handler:
        service, secure = self._service, self._credentials is not None

        async def respond(data: bytes, context: Context) -> bytes:
            names = client_names(context.auth_context()) if secure else ()
            call = Call(context.peer(), names[0] if names else "", context.time_remaining())
            try:
                response = await service.handle(rpc.name, _decode(rpc, data), call)
            except CloudgraftError as error:
                await abort(context, error)
                raise  # not reached: abort() raises
            return response.SerializeToString()

        return respond


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: CloudgraftError) -> None:
    """Ends a call with an error's status; its name goes along, since some errors share a status."""
    metadata = [("cloudgraft-error", error.slug)]
    if error.retry_after is not None:
        metadata.append(("cloudgraft-retry-after", f"{error.retry_after:g}"))
    await context.abort(_STATUS[StatusCode(error.status).value], error.message, tuple(metadata))


def _decode(rpc: Rpc, data: bytes) -> Any:
    try:
        return rpc.request.FromString(data)
    except DecodeError as error:
        raise InvalidArgumentError(f"the request is not a valid {rpc.request.DESCRIPTOR.name}") from error


def _method_handler(handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
    # Bytes in, bytes out: a message that cannot be parsed is then answered like any other bad input.
    return grpc.unary_unary_rpc_method_handler(handler)
