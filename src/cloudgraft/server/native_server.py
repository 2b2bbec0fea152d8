"""Serves the autoscaler's calls over the native transport: HTTP/2, TLS and ready replies without Python.

The extension (``native/`` in the repository) owns the connections. It answers repeated calls from its table of earlier
replies, and passes everything else to the event loop. It never waits for the interpreter: the loop watches a
descriptor, and takes the pending work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import cloudgraft_native as native
from google.protobuf import descriptor_pb2

from cloudgraft.certs.names import names_in_der
from cloudgraft.sdk.errors import CloudgraftError, StatusCode, UnavailableError
from cloudgraft.server.clients import RefusalLog
from cloudgraft.server.listener import Access, fitting, metadata_of
from cloudgraft.server.tls import ReloadingCredentials
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.service.cloud_provider import KEPT
from cloudgraft.service.metrics import BUCKETS
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from cloudgraft.wire.pb import externalgrpc_pb2

log = logging.getLogger("cloudgraft.server")

_BEAT: Final = 1.0  # seconds between two heartbeats
_TABLE_BYTES: Final = 64 * 1024 * 1024
_STALL: Final = 30.0  # seconds beyond the longest call within which a client must have read its answer
_LAST: Final = 1.0  # seconds that connections get to end when they are dropped


class NativeServer:
    """One listening address for one service."""

    def __init__(
        self, service: CloudProviderService, access: Access, *, trouble: Callable[[], str] | None = None
    ) -> None:
        """Prepares a listener; :meth:`start` opens it. ``trouble`` returns why not to call here, for health."""
        self._service = service
        self._listen = self.address = access.listen
        self._trouble = trouble
        self.tls = ReloadingCredentials(access.tls) if access.tls else None
        self._allowed = frozenset(access.allowed_clients)
        self._refusal_log = RefusalLog()
        limits = access.limits
        self._native = native.Listener(
            SERVICE,
            {rpc: _key(rpc) for rpc in RPCS},
            descriptors=_descriptors(),
            healthy_names=["", "plugin", SERVICE],
            buckets=list(BUCKETS),
            table_bytes=_TABLE_BYTES,
            connections=limits.allowed_connections,
            streams=limits.streams,
            calls=limits.calls,
            header_bytes=limits.header_bytes,
            message_bytes=limits.message_bytes,
            handshake=limits.handshake,
            idle=limits.idle,
            stall=service.deadline + _STALL,
        )
        metrics = service.metrics
        self._refuse = metrics.listeners.refusals("autoscaler")
        self._refused: Mapping[str, int] = {}
        metrics.listeners.watch("autoscaler", self._native.connections, limits.allowed_connections)
        metrics.add_ready_replies(self._native)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._is_usable: bool | None = None
        self._is_stopping = False
        self._stopped = asyncio.Event()

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port is not available."""
        self._use_tls()
        self._service.provider.follow(self)
        self._beat()
        asyncio.get_running_loop().add_reader(self._native.fileno(), self._work)
        try:
            self.address = self._native.start(self._listen)
        except OSError as error:
            asyncio.get_running_loop().remove_reader(self._native.fileno())
            raise UnavailableError(
                f"cannot listen on {self._listen}: is another program using it, or is it not an address of this host?"
            ) from error
        self._beating = asyncio.create_task(self._keep_beating(), name="native transport")

    async def drop_connections(self) -> None:
        """Ends all connections at once, calls in flight with UNAVAILABLE; the address stays open for new ones.

        Changes under way continue; only their callers do not get the result.
        """
        self._native.drop_connections()
        log.info("closed all connections, and listening again", extra={"address": self.address})

    async def stop(self, grace: float) -> None:
        """Refuses new calls, gives those in flight at most ``grace`` seconds to end, then closes."""
        deadline = time.monotonic() + grace
        self._is_stopping = True
        if self._beating is not None:  # it was started
            await self._close(grace)
            self._beating.cancel()
        await self._service.close(max(0.0, deadline - time.monotonic()))

    async def _close(self, grace: float) -> None:
        self._beat()
        self._native.stop()
        if not await self._has_stopped(grace):
            self._native.drop_connections()
            await self._has_stopped(_LAST)
        asyncio.get_running_loop().remove_reader(self._native.fileno())
        for task in list(self._tasks.values()):
            task.cancel()

    async def _has_stopped(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()

    # -- ready replies -----------------------------------------------------------------------------------------------

    def publish(self, subjects: Collection[str]) -> None:
        """Drops all replies that depend on one of these subjects."""
        self._native.publish(list(subjects))

    def clear(self) -> None:
        """Drops all replies."""
        self._native.clear()

    def close(self) -> None:
        """Stops sending kept replies until the provider declares them valid again."""
        self._native.valid_until(0.0)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            self._beat()

    def _beat(self) -> None:
        """Sends a heartbeat of this loop to the extension, with the changed settings."""
        # At -v5 every call is logged, so every call has to come here.
        self._native.bypass(self._is_stopping or log.isEnabledFor(logging.DEBUG))
        self._native.valid_until(self._service.provider.replies_valid_until())
        self._native.beat(self._can_be_used())
        self._count_refusals()

    def _can_be_used(self) -> bool:
        try:
            usable = not (self._is_stopping or (self._trouble and self._trouble()))
        except Exception:
            if self._is_usable is not False:  # once, not at every check
                log.exception("the check whether the server can be used failed: it counts as unusable")
            usable = False
        self._is_usable = usable
        return usable

    def _count_refusals(self) -> None:
        counts = self._native.refusals()
        for reason, count in counts.items():
            for _ in range(count - self._refused.get(reason, 0)):
                self._refuse(reason)
        self._refused = counts

    # -- work from the extension -------------------------------------------------------------------------------------

    def _work(self) -> None:
        for event in self._native.take():
            if isinstance(event, native.Call):
                self._tasks[event.number] = asyncio.create_task(self._answer(event))
            elif isinstance(event, native.Cancelled):
                self._cancel(event.number)
            elif isinstance(event, native.Waiting):
                self._bring_up_to_date(event.reason)
                event.go_on()
            elif isinstance(event, native.Certificate):
                self._identify(event)
            elif isinstance(event, native.Refused):
                names = tuple(filter(None, event.client.split(", ")))
                self._refusal_log.write(names, event.peer, event.method)
                self._count_refusals()
            elif isinstance(event, native.Stopped):
                self._stopped.set()

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            # A task that is cancelled before its first step never runs its own clean-up.
            task.add_done_callback(lambda _: self._tasks.pop(number, None))
            task.cancel()

    def _bring_up_to_date(self, reason: str) -> None:
        if reason == "health":
            self._beat()
        elif self.tls is not None and self.tls.reload():
            self._use_tls()

    async def _answer(self, event: native.Call) -> None:
        call = Call(event.peer, lambda: event.client, event.seconds_left, lambda: event.traceparent)
        try:
            message, subjects = await self._service.handle_to_keep(event.method, event.message, call)
            event.reply(message, None if subjects is None else list(subjects))
        except CloudgraftError as error:
            event.fail(StatusCode(error.status).value, fitting(error.message), metadata_of(error))
        except BaseException:
            # At once: a reference to the exception would keep the call open, and its caller would wait.
            event.fail(StatusCode.INTERNAL.value, "the call was given up: the server's log has the details", [])
            raise
        finally:
            self._tasks.pop(event.number, None)

    def _identify(self, event: native.Certificate) -> None:
        try:
            names = names_in_der(event.der)
        except ValueError as error:
            log.warning("a client's certificate cannot be read", extra={"error": str(error)})
            names = ()
        event.identify(", ".join(names), not self._allowed or not self._allowed.isdisjoint(names))

    def _use_tls(self) -> None:
        if self.tls is None:
            return
        material = self.tls.material
        try:
            self._native.set_tls(material.cert, material.key, material.ca or b"")
        except ValueError as error:
            if self._beating is None:  # at the start nothing serves yet
                raise UnavailableError(f"the TLS files cannot be used: {error}") from error
            log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})


def _key(rpc: str) -> str:
    """The key of this call's replies: the whole request, or the fields that identify a node."""
    if rpc not in KEPT:
        return ""
    return "node" if rpc == "NodeGroupForNode" else "message"


def _descriptors() -> bytes:
    """The descriptors of the service and of all its imports, for reflection."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        found.setdefault(file.name, proto)

    add(externalgrpc_pb2.DESCRIPTOR)
    return descriptor_pb2.FileDescriptorSet(file=found.values()).SerializeToString()
