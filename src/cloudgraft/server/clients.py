"""Admits clients by the names in their certificates, and closes connections that flood a listener."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from cloudgraft.certs.names import names_in_pem
from cloudgraft.net import connections
from cloudgraft.net.connections import FLOOD, NOT_ALLOWED, TOO_MANY, RateLimitedLog, Refuse, choose

# -- Closes connections that flood a gRPC listener, and untrusted ones when it is full ---------------------------------
# gRPC can do neither. It counts the calls of all connections together, and accepts connections until the autoscaler
# cannot connect.


_EVERY: Final = 0.2  # seconds between two counts
_EVERY_WHEN_FULL: Final = 0.05
_LOOK_EVERY: Final = 5.0  # seconds between two scans of all descriptors, at most, when there are many
_PAUSE: Final = 0.02  # seconds between two scans of all descriptors, at least
_OLD: Final = 2  # times the limit: this many peers are remembered before closed ones are forgotten
_ROOM: Final = 2  # one part in this many of the connections is kept free for those that come between two counts
_FLOOD_CALLS: Final = 20  # refused calls of one connection that count as a flood, if they come within
_FLOOD_SECONDS: Final = 2.0


class ConnectionWatch:
    """Watches the connections to one port. It runs in the event loop of the listener."""

    def __init__(self, limit: int, refuse: Refuse, reason: str = NOT_ALLOWED) -> None:
        """``limit`` is the number of connections that gRPC accepts. ``reason`` is why calls are refused."""
        self._most = limit - limit // _ROOM
        self._refuse = refuse
        self._reason = reason
        self._port = 0
        self._trusted: set[str] = set()  # gRPC's names of peers; some may be closed
        self._most_trusted = limit * _OLD
        self._refused: dict[str, int] = {}  # refused calls in the last seconds, by peer
        self._forget_at = 0.0
        self._found: dict[connections.Peer, int] = {}  # descriptor by peer, in the order in which they were first seen
        self._looked = 0.0
        self._enough = self._most  # number of descriptors of the process from which on this port may have too many
        self._task: asyncio.Task[None] | None = None

    def trust(self, peer: str) -> None:
        """Trusts a peer that made an allowed call. Runs for every call, so it does little."""
        if peer not in self._trusted:
            self._trusted.add(peer)
            if len(self._trusted) > self._most_trusted:
                self._look()
                self._forget_closed()

    def refused(self, peer: str) -> None:
        """Counts a refused call of a peer; after many, closes the connection with all its queued calls."""
        self._refuse(self._reason)
        count = self._refused[peer] = self._refused.get(peer, 0) + 1
        if count >= _FLOOD_CALLS and self._hang_up(_parsed(peer)):
            self._refuse(FLOOD)

    def start(self, port: int) -> None:
        """Begins to watch."""
        self._port = port
        self._task = asyncio.create_task(self._run(), name="connection watch")

    def stop(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()

    def count(self) -> int:
        """The number of connections. May be called from any thread."""
        return len(connections.accepted(self._port)) if self._port else 0

    async def _run(self) -> None:
        pause = _EVERY
        while True:
            await asyncio.sleep(pause)
            self._forget_refused()
            # Counting all descriptors is quick. They are scanned only when this port may have too many connections.
            total = connections.count_descriptors()
            is_old = time.monotonic() - self._looked > _LOOK_EVERY and total > self._most
            closed = self._make_room() if total > self._enough or is_old else 0
            pause = _EVERY_WHEN_FULL if closed else _EVERY
            if total > self._enough or is_old:
                self._enough = total - closed + max(0, self._most - len(self._found))

    def _forget_refused(self) -> None:
        now = time.monotonic()
        if now >= self._forget_at:
            self._refused.clear()
            self._forget_at = now + _FLOOD_SECONDS

    def _make_room(self) -> int:
        """Closes untrusted connections above the limit; returns how many."""
        self._look()
        trusted = self._forget_closed()
        untrusted = {peer: peer[0] for peer in self._found if peer not in trusted}
        doomed = choose(untrusted, len(self._found) - self._most)
        closed = sum(self._hang_up(peer) for peer in doomed)
        for _ in range(closed):
            self._refuse(TOO_MANY)
        return closed

    def _forget_closed(self) -> set[connections.Peer]:
        """Forgets trusted peers that the latest scan did not find; returns the rest."""
        trusted = {name: peer for name in self._trusted if (peer := _parsed(name)) in self._found}
        self._trusted = set(trusted)
        return set(trusted.values())

    def _hang_up(self, peer: connections.Peer) -> bool:
        """Closes a connection; returns False if it is already closed, or was not found yet."""
        if peer not in self._found and time.monotonic() - self._looked > _PAUSE:
            self._look()
        descriptor = self._found.pop(peer, None)
        return descriptor is not None and connections.hang_up(descriptor, peer, self._port)

    def _look(self) -> None:
        found = connections.accepted(self._port)
        self._found = {peer: found[peer] for peer in [*(old for old in self._found if old in found), *found]}
        self._looked = time.monotonic()


def _parsed(name: str) -> connections.Peer:
    """Converts gRPC's name of a peer, such as ``ipv6:%5B::1%5D:4711``, to the kernel's form."""
    host, _, port = unquote(name.partition(":")[2]).rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdigit() else 0


# -- admission before the body -----------------------------------------------------------------------------------------
# gRPC reads the body of a unary call before it calls the handler. A client that sends none could hold any number of
# calls open, unseen. So unary methods are registered as streaming ones: their handlers run at once, and read the single
# message themselves.


Context = grpc.aio.ServicerContext[Any, Any]


async def only_message(context: Context) -> Any:
    """Reads the single message of a call; aborts the call when there is none."""
    message = await context.read()
    if message is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a message")
    return message


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers calls of methods that no other handler of a server has; add it last.

    gRPC answers them too, but does not check the client. A client that is not allowed could flood a server with them,
    and no metric or log line would show it.
    """

    def __init__(self, admit: Callable[[Context, str], Awaitable[None]]) -> None:
        """``admit`` aborts the call of a client that is not allowed; it gets the method's name too."""
        self._admit = admit

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Makes a handler for each call: clients choose the names, so nothing is cached by name."""
        method = handler_call_details.method

        async def refuse(_requests: object, context: Context) -> None:
            await self._admit(context, method)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")  # gRPC's own message

        return grpc.stream_stream_rpc_method_handler(refuse)


log = logging.getLogger("cloudgraft.server")


def client_names(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The common name and the DNS and URI names of a client's certificate; empty without TLS."""
    pem = next(iter(auth_context.get("x509_pem_cert", ())), b"")
    return names_in_pem(pem) if pem else ()


class AllowedClients:
    """Admits a call only if one of the names in the client's certificate is allowed.

    It decides as soon as the headers of a call have arrived.

    Not an interceptor: gRPC would rebuild the guarded method for each call, which takes a tenth of a call's time.
    """

    def __init__(self, allowed: Collection[str], watch: ConnectionWatch) -> None:
        """Without names, every client may call. ``watch`` gets the peer of each call."""
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
        # One of the four is set; gRPC's types describe only the threaded variant, not asyncio's.
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
            else:  # a handler that writes to the context itself
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
    """Logs refused clients, once a minute each: a misconfigured autoscaler calls hundreds of times."""

    def __init__(self) -> None:
        self._log = RateLimitedLog(log)

    def write(self, names: tuple[str, ...], peer: str, method: str) -> None:
        """Logs one refused call; ``names`` are from the client's certificate."""
        self._log.warning(
            "refused a client that is not in allowedClients: %s",
            ", ".join(names) or "a certificate without a name",
            who=names,
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
            if handler is None:  # no such method: gRPC answers that itself
                return None
            self._methods[method] = self._guard(handler, method)
        return self._methods[method]


class GuardedServer:
    """Wraps a server while services register with it, so that no service is left unguarded."""

    def __init__(self, server: grpc.aio.Server, allowed: AllowedClients) -> None:
        self._server = server
        self._allowed = allowed

    def add_generic_rpc_handlers(self, services: Iterable[grpc.GenericRpcHandler]) -> None:
        """Called by generated code."""
        self._server.add_generic_rpc_handlers(tuple(self._allowed.guarded(service) for service in services))

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Also called by generated code. Ignored: grpc.aio does not use it, and it would bypass the guard."""
