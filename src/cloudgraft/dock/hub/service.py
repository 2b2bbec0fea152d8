"""Serves the hub's calls over gRPC: v1, and v0 under both of its names. Handles raw bytes, so that no error is lost."""

from __future__ import annotations

import base64
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.dock.access import WAYS_TO_SECRETS, CallerAccess, CallerIdentity, Context, admit
from cloudgraft.dock.classes.declared import shown
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.session import Session
from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.dock.protocol.dialect import Dialect
from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.dock.protocol.v0 import REGISTER_CALL, SERVICES, DialectV0, class_json, empty_secret, namespace_of
from cloudgraft.dock.protocol.v1 import CONNECT, SERVICE, DialectV1
from cloudgraft.net.connections import RateLimitedLog
from cloudgraft.sdk.errors import (
    CloudgraftError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from cloudgraft.sdk.secrecy import secret_values
from cloudgraft.server.clients import only_message
from cloudgraft.server.listener import ListenerLimits, abort
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0

log = logging.getLogger("cloudgraft.dock")

M = TypeVar("M", bound=Message)


def listener_limits(settings: HubSettings) -> ListenerLimits:
    """Limits of a hub's listener: a stream for each session, and some calls beside them."""
    return ListenerLimits(
        connections=settings.max_connections,
        streams=settings.max_sessions,
        calls=settings.max_sessions + 1000,
        message_bytes=settings.max_message_bytes,
        handshake=settings.handshake,
        ping_interval=5.0,  # drivers ping too; gRPC disconnects one that keeps pinging more often than this
    )


def server_options(settings: HubSettings) -> tuple[tuple[str, int], ...]:
    """Options of gRPC for a hub's server: detect frozen drivers, and reject huge messages."""
    keepalive, timeout = int(settings.keepalive * 1000), int(settings.keepalive_timeout * 1000)
    return (
        *listener_limits(settings).grpc_options(),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", timeout),
        ("grpc.keepalive_permit_without_calls", 1),
        # Without this, a frozen driver of v0 is detected only after a minute, whatever keepalive says.
        ("grpc.http2.ping_timeout_ms", timeout),
    )


class DockService:
    """The gRPC handlers of one hub."""

    def __init__(
        self,
        serve: Callable[[Context, Dialect], Awaitable[None]],
        access: CallerAccess,
        classes: MachineClasses,
        sessions: Callable[[], Sequence[Session]],
    ) -> None:
        """``serve`` serves one driver's stream from beginning to end; ``sessions`` are the admitted drivers."""
        self._serve = serve
        self._access = access
        self._classes = classes
        self._sessions = sessions
        self._refusals = RateLimitedLog(log)
        self._v0 = DialectV0()
        self._v1 = DialectV1()

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """One handler for each service name."""
        methods_v1 = {
            CONNECT: self._stream(self._v1),
            "GetMachineClass": self._unary(v1.GetMachineClassRequest, self._class_v1),
            "GetSecret": self._unary(v1.GetSecretRequest, self._secret_v1),
        }
        methods_v0 = {
            REGISTER_CALL: self._stream(self._v0),
            "GetMachineClass": self._unary(v0.MachineClassMeta, self._class_v0),
            "GetSecret": self._unary(v0.SecretMeta, self._secret_v0),
        }
        services = ((SERVICE, methods_v1), *((name, methods_v0) for name in SERVICES))
        return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services]

    def _stream(self, dialect: Dialect) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(_requests: object, context: Context) -> None:
            try:
                await self._serve(context, dialect)
            except grpc.aio.BaseError:
                raise
            except Exception as error:
                await abort(context, _bug(error))
                raise  # not reached: abort() raises

        return grpc.stream_stream_rpc_method_handler(serve)

    def _class_v1(self, request: v1.GetMachineClassRequest, context: Context) -> Message:
        found = self._machine_class(context, request.name)
        return v1.MachineClass(name=found.name, revision=found.revision, json=found.json)

    def _secret_v1(self, request: v1.GetSecretRequest, context: Context) -> Message:
        found = self._secret_of(context, request.machine_class)
        return v1.Secret(revision=found.revision, data=found.data)

    def _class_v0(self, request: v0.MachineClassMeta, context: Context) -> Message:
        return v0.MachineClass(data=class_json(self._machine_class(context, request.name)))

    def _secret_v0(self, request: v0.SecretMeta, context: Context) -> Message:
        return v0.Secret(data=secret_json(self._secret_named(context, request.secretName, request.nameSpace)))

    def _unary(self, request: type[M], answer: Callable[[M, Context], Message]) -> grpc.RpcMethodHandler[Any, Any]:
        async def respond(_messages: Any, context: Context) -> bytes:
            try:
                admit(self._access, context)  # before the body is read
                data = await only_message(context)
                return _answered(request, answer, data, context).SerializeToString()
            except CloudgraftError as error:
                await abort(context, error)
                raise  # not reached: abort() raises

        handler: Callable[[Any, Context], Awaitable[bytes]] = respond
        return grpc.stream_unary_rpc_method_handler(handler)

    # -- machine classes and secrets -----------------------------------------------------------------------------------
    # A driver sees only those of its own kind. A request does not name a kind, so the caller's connection determines
    # it. Names are looked up and never become part of a path. A request for something of another driver gets the same
    # answer as one for something that does not exist.

    def _machine_class(self, context: Context, name: str) -> MachineClass:
        """Returns the class of that name, of the caller's own kind; raises NotFoundError."""
        identity = admit(self._access, context)
        for session in self._callers(identity, context):
            found = self._class(session, name)
            if found is not None:
                if not identity.gets_secrets and _holds_secrets(found):
                    self._check_secrets(identity, context, f"the machine class {shown(name)} holds secrets")
                session.note_class(name)
                return found
        raise _nothing("machine class")

    def _secret_of(self, context: Context, machine_class: str) -> Secret:
        """Returns the secret that a class of the caller's own kind names; raises NotFoundError."""
        identity = admit(self._access, context)
        for session in self._callers(identity, context):
            found = self._class(session, machine_class)
            secret = self._classes.secret(found) if found is not None else None
            if secret is not None:
                self._check_secrets(identity, context, f"the secret of machine class {shown(machine_class)}")
                return secret
        raise _nothing("secret")

    def _secret_named(self, context: Context, name: str, namespace: str) -> Secret:
        """Returns the secret of that name if a class that the caller works with names it; raises NotFoundError.

        A class may name two. Each name gives the values of both: a driver of 2018 knows one, and requests only that.
        """
        identity = admit(self._access, context)
        for session in self._callers(identity, context):
            for known in reversed(session.classes):
                found = self._class(session, known)
                if found is None or not name or name not in (found.secret or found.name, found.also_named):
                    continue
                secret = self._classes.secret(found) if found.secret else empty_secret(found)
                if secret is not None and namespace in {"", secret.namespace, namespace_of(found)}:
                    if found.secret:
                        self._check_secrets(identity, context, f"the secret {shown(name)}")
                    return replace(secret, name=name, namespace=secret.namespace or namespace_of(found))
        raise _nothing("secret")

    def _check_secrets(self, identity: CallerIdentity, context: Context, what: str) -> None:
        """Raises PermissionDeniedError for a caller that has not proved who it is, unless the file allows that."""
        if identity.gets_secrets:
            return
        self._refusals.warning(
            "a driver on this host has not proved who it is, and does not get %s: %s",
            what,
            WAYS_TO_SECRETS,
            who=what,
            extra={"peer": context.peer()},
        )
        raise PermissionDeniedError(
            f"this driver has not proved who it is, and does not get {what}: {WAYS_TO_SECRETS}, in the configuration "
            "of cloudgraft"
        )

    def _callers(self, identity: CallerIdentity, context: Context) -> Iterator[Session]:
        """The caller's own connections, first those with the same peer address as this call.

        All programs on this host share one identity unless they prove who they are. Only the connection then shows
        which of them calls: it must be the one on which the driver is registered. A unix socket shows no connection;
        the rights to its file decide who may call.
        """
        own = [each for each in self._sessions() if each.identity == identity.name and identity.may(each.key)]
        peer = context.peer()
        if not identity.is_proved and not peer.startswith("unix:"):
            own = [each for each in own if each.peer == peer]
        return iter(sorted(own, key=lambda session: session.peer != peer))

    def _class(self, session: Session, name: str) -> MachineClass | None:
        try:
            found = self._classes.get(name, session.key)
        except NotFoundError:
            return None
        return found if found.key == session.key else None


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


def _holds_secrets(machine_class: MachineClass) -> bool:
    """Whether a value of the class stands below a key that names a secret."""
    return any(secret_values(json.loads(machine_class.json or "{}")))


def _nothing(what: str) -> NotFoundError:
    # Without the name: it is the caller's own text, and may contain anything.
    return NotFoundError(f"there is no such {what} for drivers of this kind that are connected")


def secret_json(secret: Secret) -> str:
    """Formats a secret as Kubernetes JSON, which drivers of v0 read."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": secret.name, "namespace": secret.namespace, "resourceVersion": str(secret.revision)},
            "data": {name: base64.b64encode(value).decode() for name, value in secret.data.items()},
        }
    )
