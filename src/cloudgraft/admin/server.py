"""Serves the admin methods to users of the socket and to clients with an allowed certificate."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry

from cloudgraft.admin.caller import set_caller
from cloudgraft.admin.wire import (
    LONGEST_ANSWER,
    LONGEST_REQUEST,
    SERVICE,
    check_path,
    decode,
    encode_in_slices,
    grpc_address,
    remove_stale_socket,
)
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.server.clients import client_names
from cloudgraft.server.listener import Access, Listener, ListenerLimits, Unfinished, abort, has_port
from cloudgraft.store.journal import JournalUnavailableError

log = logging.getLogger("cloudgraft.admin")

Method = Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]
Context = grpc.aio.ServicerContext[bytes, bytes]
_LIMITS: Final = ListenerLimits(connections=64, streams=32, calls=100, message_bytes=LONGEST_REQUEST)
# A running server reverts such a change. If it ends before that, the change is in the journal.
_DOUBT: Final = (
    "; the change may have been written all the same: when the journal can be used again, see with `cloudgraft status` "
    "or `cloudgraft explain` whether it is in force, and repeat it or take it back"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class AdminServer:
    """Answers operators. A method takes a JSON object and returns one, or raises an error of the sdk.

    A method that has begun continues when its caller gives up or disconnects, so that no change is left half done.
    """

    def __init__(
        self, methods: Mapping[str, Method], where: Access | Path, *, metrics: ListenerMetrics | None = None
    ) -> None:
        """``where`` is the path of a unix socket, or a TLS port whose ``allowed_clients`` are the operators."""
        for name in methods:
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"{name!r} cannot be the name of a method")
        self.path = check_path(where) if isinstance(where, Path) else None
        access = _closed(where) if isinstance(where, Access) else Access(listen=grpc_address(check_path(where)))
        access = replace(access, limits=_LIMITS)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(self._responder(name, method)) for name, method in methods.items()
        }
        self._listener = Listener(
            grpc.method_handlers_generic_handler(SERVICE, handlers),
            access,
            service_name=SERVICE,
            name="admin",
            metrics=metrics or ListenerMetrics(CollectorRegistry()),
            only_for_owner=True,
        )
        self._unfinished = Unfinished()

    @property
    def address(self) -> str:
        """The address for clients: ``unix:`` and the path, or host and port."""
        return f"unix:{self.path}" if self.path else self._listener.address

    async def start(self) -> None:
        """Opens the socket or port; raises PreconditionError or UnavailableError when that fails."""
        if self.path is not None:
            remove_stale_socket(self.path)
        await self._listener.start()
        log.info("operators may call", extra={"address": self.address})

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those under way ``grace`` seconds, then ends them. The socket is removed."""
        deadline = time.monotonic() + grace
        await self._listener.stop(grace)
        await self._unfinished.drain(max(0.0, deadline - time.monotonic()))
        left = tuple(self._unfinished.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _responder(self, name: str, method: Method) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def respond(data: bytes, context: Context) -> bytes:
            client = ", ".join(client_names(context.auth_context()))
            set_caller(client)
            try:
                answer = await self._answered(name, method, data)
            except CloudgraftError as error:
                log.info("%s failed: %s", name, error.message, extra={"method": name, "client": client})
                await abort(context, error)
                raise  # not reached: abort() raises
            log.debug("%s answered", name, extra={"method": name, "client": client, "bytes": len(answer)})
            return answer

        return respond

    async def _answered(self, name: str, method: Method, data: bytes) -> bytes:
        try:
            answer = await encode_in_slices(await self._unfinished.run(method(decode(data))))
        except JournalUnavailableError as error:
            if error.is_ambiguous:
                raise DeadlineError(f"{error.message}{_DOUBT}") from error
            raise UnavailableError(error.message) from error
        except CloudgraftError:
            raise
        except Exception as error:
            incident = secrets.token_hex(4)
            log.exception("an admin method failed unexpectedly", extra={"method": name, "id": incident})
            raise InternalError(f"internal error (id {incident}): the server's log has the details") from error
        if len(answer) > LONGEST_ANSWER:
            raise InternalError(f"the answer has {len(answer) >> 20} MiB, more than can be sent: ask for less")
        return answer


def _closed(access: Access) -> Access:
    """Rejects an access that anybody could use: there may be other users on loopback too. Else returns it."""
    if not has_port(access.listen):
        raise InvalidArgumentError("give the admin socket as a path, so that it can be kept from other users")
    if access.tls is None:
        raise InvalidArgumentError(
            f"refusing to open the admin port {access.listen} without TLS: whoever can reach it could pause groups and "
            "delete machines. Set its TLS files, or use a unix socket"
        )
    if not access.allowed_clients:
        raise InvalidArgumentError(
            f"refusing to open the admin port {access.listen} to every certificate, the autoscaler's included: "
            "name the operators in allowedClients"
        )
    return access
