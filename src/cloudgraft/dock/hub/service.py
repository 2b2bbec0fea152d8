"""The hub's calls over gRPC: v1, and v0 under both of its names. Bytes in and out, so that nothing fails unseen."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.dock.hub.admission import Reception
from cloudgraft.dock.hub.class_requests import Fetching, secret_json
from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.dock.ports import Context
from cloudgraft.dock.protocol.conversion_v1 import class_to_pb, secret_to_pb
from cloudgraft.dock.protocol.dialect import Speech
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError
from cloudgraft.server.clients import only_message
from cloudgraft.server.listener import ListenerLimits, abort
from cloudgraft.wire.dock import CONNECT, REGISTER, V0_SERVICES, V1_SERVICE
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0

__all__ = ["DockService", "listener_limits", "server_options"]

log = logging.getLogger("cloudgraft.dock")

M = TypeVar("M", bound=Message)


def listener_limits(settings: HubSettings) -> ListenerLimits:
    """How much the listener of a hub takes: a stream for each session, and some calls beside them."""
    return ListenerLimits(
        connections=settings.max_connections,
        streams=settings.max_sessions,
        calls=settings.max_sessions + 1000,
        message_bytes=settings.max_message_bytes,
        handshake=settings.handshake,
        ping_interval=5.0,  # drivers ping too; one that does so more often than this, again and again, is cut off
    )


def server_options(settings: HubSettings) -> tuple[tuple[str, int], ...]:
    """How a server must be opened for a hub: a frozen driver is noticed, and a huge message is not taken."""
    keepalive, timeout = int(settings.keepalive * 1000), int(settings.keepalive_timeout * 1000)
    return (
        *listener_limits(settings).grpc_options(),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", timeout),
        ("grpc.keepalive_permit_without_calls", 1),
        # Without this a frozen driver of v0 is noticed only after a minute, whatever keepalive says.
        ("grpc.http2.ping_timeout_ms", timeout),
    )


class DockService:
    """What a gRPC server takes for one hub."""

    def __init__(self, reception: Reception, fetching: Fetching, speech_v0: Speech, speech_v1: Speech) -> None:
        self._reception = reception
        self._fetching = fetching
        self._v0 = speech_v0
        self._v1 = speech_v1

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """One for each service name."""
        methods_v1 = {
            CONNECT: self._stream(self._v1),
            "GetMachineClass": self._unary(v1.GetMachineClassRequest, self._class_v1),
            "GetSecret": self._unary(v1.GetSecretRequest, self._secret_v1),
        }
        methods_v0 = {
            REGISTER: self._stream(self._v0),
            "GetMachineClass": self._unary(v0.MachineClassMeta, self._class_v0),
            "GetSecret": self._unary(v0.SecretMeta, self._secret_v0),
        }
        services = ((V1_SERVICE, methods_v1), *((name, methods_v0) for name in V0_SERVICES))
        return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services]

    def _stream(self, speech: Speech) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(_requests: object, context: Context) -> None:
            try:
                await self._reception.serve(context, speech)
            except grpc.aio.BaseError:
                raise
            except Exception as error:
                await abort(context, _bug(error))
                raise  # not reached: abort() raises

        return grpc.stream_stream_rpc_method_handler(serve)

    def _class_v1(self, request: v1.GetMachineClassRequest, context: Context) -> Message:
        return class_to_pb(self._fetching.machine_class(context, request.name))

    def _secret_v1(self, request: v1.GetSecretRequest, context: Context) -> Message:
        return secret_to_pb(self._fetching.secret_of(context, request.machine_class))

    def _class_v0(self, request: v0.MachineClassMeta, context: Context) -> Message:
        return v0.MachineClass(data=self._fetching.machine_class(context, request.name).json)

    def _secret_v0(self, request: v0.SecretMeta, context: Context) -> Message:
        return v0.Secret(data=secret_json(self._fetching.secret_named(context, request.secretName, request.nameSpace)))

    def _unary(self, request: type[M], answer: Callable[[M, Context], Message]) -> grpc.RpcMethodHandler[Any, Any]:
        async def respond(_messages: Any, context: Context) -> bytes:
            try:
                self._fetching.check(context)  # first: who may not call is refused before a body is read
                data = await only_message(context)
                return _answered(request, answer, data, context).SerializeToString()
            except CloudgraftError as error:
                await abort(context, error)
                raise  # not reached: abort() raises

        handler: Callable[[Any, Context], Awaitable[bytes]] = respond
        return grpc.stream_unary_rpc_method_handler(handler)


def _answered(request: type[M], answer: Callable[[M, Context], Message], data: bytes, context: Context) -> Message:
    try:
        return answer(request.FromString(data), context)
    except CloudgraftError:
        raise
    except DecodeError:
        raise InvalidArgumentError(f"the request is not a valid {request.DESCRIPTOR.name}") from None
    except Exception as error:
        raise _bug(error) from error


def _bug(error: Exception) -> InternalError:
    incident = secrets.token_hex(4)
    log.error("the hub met an unexpected exception", exc_info=error, extra={"id": incident})
    return InternalError(f"internal error (id {incident}): the hub's log has the details")
