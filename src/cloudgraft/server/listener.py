"""Runs a gRPC listener for any service: mTLS, allowed clients, limits, health, reflection, graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.net.descriptors import connection_limit
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, StatusCode, UnavailableError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.server.clients import AllowedClients, ConnectionWatch, GuardedServer
from cloudgraft.server.tls import ReloadingCredentials, TlsFiles

# -- health ------------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.server")

_LOOK_EVERY: Final = 1.0  # seconds; only for Watch: Check is answered from the current state


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # the package has no types
    """SERVING while ``trouble`` is empty, else NOT_SERVING; NOT_SERVING for good after ``enter_graceful_shutdown``."""

    def __init__(self, names: Sequence[str], trouble: Callable[[], str] | None) -> None:
        """Answers for these services; without ``trouble`` they are always SERVING."""
        super().__init__()
        self._names = names
        self._trouble = trouble
        self._usable: bool | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to notify watchers."""
        await self._update()
        if self._trouble is not None:
            self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """NOT_SERVING from now on."""
        if self._following is not None:
            self._following.cancel()
        await self.enter_graceful_shutdown()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Answers with the current state, not with that of the last check."""
        await self._update()
        return await super().Check(request, context)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._update()

    async def _update(self) -> None:
        usable = self._is_usable()
        if usable is self._usable:
            return
        self._usable = usable
        states = health_pb2.HealthCheckResponse
        for name in self._names:
            await self.set(name, states.SERVING if usable else states.NOT_SERVING)

    def _is_usable(self) -> bool:
        try:
            return not (self._trouble and self._trouble())
        except Exception:
            if self._usable is not False:  # once, not at every check
                log.exception("the check whether the server can be used failed: it counts as unusable")
            return False


# -- addresses ---------------------------------------------------------------------------------------------------------
# Nothing is exposed without TLS by accident.


def has_port(listen: str) -> bool:
    """Whether the address has a port; False for a unix socket."""
    return not listen.startswith(("unix:", "unix-abstract:"))


def is_loopback(listen: str) -> bool:
    """Whether only programs on this host can reach the address."""
    return not has_port(listen) or is_loopback_host(listen.rpartition(":")[0])


def check_exposure(listen: str, *, secure: bool, insecure: bool) -> None:
    """Refuses to serve other hosts without TLS unless ``insecure`` explicitly allows it."""
    host, colon, port = listen.rpartition(":")
    if has_port(listen) and not (colon and host and port.isdigit() and int(port) <= 65535):
        raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as 127.0.0.1:8086")
    if not secure and not insecure and not is_loopback(listen):
        raise InvalidArgumentError(
            f"refusing to serve {listen} without TLS: whoever can reach it could create and delete machines. "
            "Set server.tls (`cloudgraft certs init DIR` makes the files), listen on 127.0.0.1, or say --insecure"
        )


# -- limits ------------------------------------------------------------------------------------------------------------


_MOST_PENDING: Final = 100_000  # calls waiting to be handled; each takes some kilobytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The limits of a listener and of each connection.

    The defaults fit an autoscaler with several replicas: one connection each, tens of concurrent calls.
    """

    connections: int = 512  # at most the listener's share of the descriptors
    streams: int = 50  # calls under way on one connection
    calls: int = 1000  # calls under way on all of them
    handshake: float = 10.0  # seconds from the connection to its first HTTP/2 frame
    idle: float = 600.0  # seconds without a call after which a connection is closed gracefully
    ping_interval: float = 10.0  # seconds between two pings that a client without calls may send
    header_bytes: int = 16 * 1024
    message_bytes: int = 4 * 1024 * 1024

    @property
    def allowed_connections(self) -> int:
        """The number of connections to accept."""
        return connection_limit(self.connections)

    def grpc_options(self) -> tuple[tuple[str, int], ...]:
        """The limits as gRPC options. gRPC limits nothing else: see docs/explanation/security.md."""
        pending = min(self.allowed_connections * self.streams, _MOST_PENDING)
        handshake = max(1, round(self.handshake * 1000))
        return (
            # Without this a second server on the same port would start, and each would get a part of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", self.allowed_connections),
            # Reset streams count until gRPC has freed them: that limits rapid resets too.
            ("grpc.max_concurrent_streams", self.streams),
            # gRPC drops calls of all connections at random when too many wait: allow as many as can come.
            ("grpc.server.max_pending_requests", pending),
            ("grpc.server.max_pending_requests_hard_limit", pending + 1),
            ("grpc.server_handshake_timeout_ms", handshake),
            ("grpc.http2.settings_timeout", handshake),
            ("grpc.max_connection_idle_ms", max(1, round(self.idle * 1000))),
            ("grpc.max_metadata_size", self.header_bytes),
            ("grpc.absolute_max_metadata_size", self.header_bytes),
            ("grpc.max_receive_message_length", self.message_bytes),
            # Clients may ping this often while they have no calls; gRPC treats more as an attack.
            ("grpc.http2.min_ping_interval_without_data_ms", round(self.ping_interval * 1000)),
        )


T = TypeVar("T")
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_LONGEST_DETAILS = 4000  # details are sent in a header, and clients refuse headers of more than about 8 KiB
_FIRST_PAUSE: Final = 0.05  # seconds between attempts to reopen the address, doubled up to the longest
_LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address of a listener, and the clients that may call it.

    ``tls`` turns mTLS on, and ``allowed_clients`` are the names that may call (empty: everyone with a certificate of
    the client CA). Without TLS only a loopback address is accepted, unless ``insecure`` says otherwise.
    ``credentials`` are ready-made ones instead of ``tls``. ``limits`` restrict the resources of clients.
    """

    listen: str
    tls: TlsFiles | None = None
    credentials: grpc.ServerCredentials | None = None
    allowed_clients: Collection[str] = ()
    insecure: bool = False
    limits: ListenerLimits = ListenerLimits()

    def __post_init__(self) -> None:
        """Rejects settings that would expose the listener by accident."""
        if isinstance(self.allowed_clients, str):
            raise InvalidArgumentError(f"allowedClients is a list of names, not one: write [{self.allowed_clients}]")
        secure = self.tls is not None or self.credentials is not None
        check_exposure(self.listen, secure=secure, insecure=self.insecure)
        if self.allowed_clients and self.tls is None:
            raise InvalidArgumentError("allowedClients needs TLS: without it a client has no name")


class Listener:
    """One listening address."""

    def __init__(
        self,
        handler: grpc.GenericRpcHandler,
        access: Access,
        *,
        service_name: str,
        name: str,
        metrics: ListenerMetrics,
        trouble: Callable[[], str] | None = None,
        only_for_owner: bool = False,
    ) -> None:
        """Prepares a listener; :meth:`start` opens it.

        ``name`` is the listener's name in the metrics.
        ``trouble`` returns why not to call here, for the health service; empty when there is no reason.
        ``only_for_owner`` denies other users of this host access to a unix socket.
        """
        self._handler = handler
        self._service_name = service_name
        self._listen = access.listen
        self._port = 0
        self.tls = ReloadingCredentials(access.tls) if access.tls else None
        self._credentials = access.credentials
        limits = access.limits
        self._watch = ConnectionWatch(limits.allowed_connections, metrics.refusals(name))
        metrics.watch(name, self._watch.count, limits.allowed_connections)
        self._allowed = AllowedClients(access.allowed_clients, self._watch)
        self._options = limits.grpc_options()
        self._calls = limits.calls
        # go-plugin's hosts check the service "plugin".
        self._health = Health(("", "plugin", service_name), trouble)
        self._mask = 0o177 if only_for_owner and not has_port(self._listen) else None
        self._server: grpc.aio.Server | None = None
        self._stopping = asyncio.Event()
        self._turn = asyncio.Lock()  # serialises closing and opening of the address
        self._drops: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The address it listens on, with the real port."""
        port = self._port or self._listen.rpartition(":")[2]
        return self._listen.rpartition(":")[0] + f":{port}" if has_port(self._listen) else self._listen

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port is not available."""
        await self._open()
        if has_port(self._listen):
            self._watch.start(self._port)
        await self._health.start()

    async def drop_connections(self) -> None:
        """Ends all connections at once, calls in flight with UNAVAILABLE, and listens again on the same address.

        If another program takes the address in between, the listener waits for it. A listener that is stopping only
        ends sooner, and nothing happens to one that was never started. Cancelling the caller does not leave it half
        done.
        """
        task = asyncio.create_task(self._drop())
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)
        await asyncio.shield(task)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those in flight at most ``grace`` seconds to end, then closes."""
        self._stopping.set()
        self._watch.stop()
        await self._health.stop()
        async with self._turn:
            if self._server is not None:
                await self._server.stop(grace)

    async def _drop(self) -> None:
        if self._stopping.is_set() and self._server is not None:
            await self._server.stop(0)
            return
        async with self._turn:
            if self._server is None:
                return
            await self._server.stop(0)
            await self._open_again()

    async def _open_again(self) -> None:
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not self._stopping.is_set():
            try:
                await self._open()
            except UnavailableError as error:
                log.warning("closed all connections, but %s", error.message, extra={"address": self.address})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next()):
                        await self._stopping.wait()
            else:
                log.info("closed all connections, and listening again", extra={"address": self.address})
                return

    async def _open(self) -> None:
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=self._calls)
        registry: Any = GuardedServer(server, self._allowed)
        registry.add_generic_rpc_handlers((self._handler,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, registry)
        names: Sequence[str] = (self._service_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        # Not enable_server_reflection(): it would take the guard for a threaded server.
        servicer = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, registry)
        server.add_generic_rpc_handlers((self._allowed.unknown_methods(),))
        self._port = self._bind(server)
        await server.start()
        self._server = server

    def _bind(self, server: grpc.aio.Server) -> int:
        # New credentials for each server: gRPC fetches the first certificate only once for each credentials object.
        credentials = self.tls.server_credentials() if self.tls else self._credentials
        try:
            with _umask(self._mask):
                if credentials is None:
                    return server.add_insecure_port(self.address)
                return server.add_secure_port(self.address, credentials)
        except RuntimeError as error:
            raise UnavailableError(
                f"cannot listen on {self.address}: is another program using it, or is it not an address of this host?"
            ) from error


@contextlib.contextmanager
def _umask(mask: int | None) -> Iterator[None]:
    """Sets the umask for files created in the block. It affects all threads, so the block must be short."""
    if mask is None:
        yield
        return
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


class Unfinished:
    """Calls that run to their end even if their caller gives up, so that no change is left half done."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Future[Any]] = set()

    async def run(self, work: Awaitable[T]) -> T:
        """The result of the work, which continues when the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def drain(self, seconds: float) -> None:
        """Waits at most this long for work whose callers have given up."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because the caller may be gone


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: CloudgraftError) -> None:
    """Aborts a call with an error's status."""
    metadata = tuple(metadata_of(error))
    await context.abort(_STATUS[StatusCode(error.status).value], fitting(error.message), metadata)


def metadata_of(error: CloudgraftError) -> list[tuple[str, str]]:
    """The metadata of an error: its name (some errors share a status), its retry-after, and whether it is final."""
    metadata = [("cloudgraft-error", error.slug)]
    if isinstance(error.retry_after, int | float) and math.isfinite(error.retry_after):
        metadata.append(("cloudgraft-retry-after", f"{error.retry_after:g}"))
    if error.is_final:
        metadata.append(("cloudgraft-final", "true"))
    return metadata


def fitting(message: str) -> str:
    """Truncates a message to fit into a header: gRPC sends every byte that is not printable ASCII as three."""
    length = 0
    for position, character in enumerate(message):
        length += 1 if " " <= character <= "~" else 3 * len(character.encode())
        if length > _LONGEST_DETAILS:
            return message[:position] + "…"
    return message
