"""Runs a server for a provider: the only call in an author's ``main()``."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cloudgraft.net.descriptors import raise_descriptor_limit
from cloudgraft.sdk.blocking import BlockingProvider, as_provider
from cloudgraft.sdk.common.extras import NATIVE, install_command
from cloudgraft.sdk.common.tracing import Tracer
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.grpc_server import GrpcServer
from cloudgraft.server.listener import Access, ListenerLimits
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.signals import run_until_signal
from cloudgraft.server.tls import ReloadingCredentials, TlsFiles
from cloudgraft.service import CloudProviderService
from cloudgraft.service.gate import Gate
from cloudgraft.service.metrics import ServiceMetrics

# -- transport ---------------------------------------------------------------------------------------------------------
# Chooses the transport of the autoscaler's listener: the native one where it is installed, else grpcio's.


class Transport(StrEnum):
    """The transport of the autoscaler's calls."""

    AUTO = "auto"
    NATIVE = "native"
    GRPCIO = "grpcio"


class AutoscalerServer(Protocol):
    """One listening address for one service, over any transport."""

    @property
    def address(self) -> str:
        """The address it listens on, with the real port."""

    @property
    def tls(self) -> ReloadingCredentials | None:
        """The certificate in use."""

    def start(self) -> Awaitable[None]:
        """Opens the port and begins to serve; raises UnavailableError when the port is not available."""

    def drop_connections(self) -> Awaitable[None]:
        """Ends all connections at once, calls in flight with UNAVAILABLE, and accepts new ones."""

    def stop(self, grace: float) -> Awaitable[None]:
        """Refuses new calls, gives those in flight at most ``grace`` seconds to end, then closes."""


def choose_transport(wanted: Transport) -> Transport:
    """The transport to use; raises InvalidArgumentError when it is not installed."""
    is_installed = importlib.util.find_spec("cloudgraft_native") is not None
    if wanted is Transport.NATIVE and not is_installed:
        raise InvalidArgumentError(
            "server.transport is native, and cloudgraft-native is not installed: "
            f"`{install_command(NATIVE)}`, or say auto or grpcio"
        )
    return Transport.NATIVE if is_installed and wanted is not Transport.GRPCIO else Transport.GRPCIO


def make_server(
    service: CloudProviderService, access: Access, transport: Transport, *, trouble: Callable[[], str] | None = None
) -> AutoscalerServer:
    """Makes a listener over the chosen transport; ``start`` opens it."""
    if transport is Transport.GRPCIO:
        return GrpcServer(service, access, trouble=trouble)
    from cloudgraft.server.native_server import NativeServer  # noqa: PLC0415 - needs the extension

    return NativeServer(service, access, trouble=trouble)


log = logging.getLogger("cloudgraft.server")
# Thresholds of the garbage collector: new objects before a collection of the youngest generation, and collections of a
# generation before the next older one. With the defaults, a list of some thousand machines alone would cause repeated
# full collections; unreachable cycles are mostly young.
_COLLECT_AFTER = (2000, 10, 1000)
_SWITCH_SECONDS = 0.001  # that one thread may compute while others wait; the interpreter's default is 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve. The defaults are safe: loopback only, until there is TLS."""

    listen: str = "127.0.0.1:8086"
    tls: TlsFiles | None = None
    allowed_clients: Collection[str] = ()  # names by SAN or CN; empty: every client with a certificate of client_ca
    insecure: bool = False  # serve other hosts without TLS
    ops: str | None = None  # address of /metrics, /healthz, /readyz; None for none
    deadline: float = 30.0  # seconds; the maximum duration of any call
    grace: float = 10.0  # seconds that calls in flight get at shutdown
    force_options: bool = False
    limits: ListenerLimits = ListenerLimits()  # noqa: RUF009 - frozen
    transport: Transport = Transport.AUTO


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up."""

    address: str
    ops_address: str | None
    service: CloudProviderService
    server: AutoscalerServer
    transport: Transport

    async def drop_connections(self) -> None:
        """Ends all connections at once, so that clients reconnect: to the leader, when this process no longer leads.

        Calls in flight end with UNAVAILABLE. The server listens on the same address again. Safe at any time, also
        twice.
        """
        await self.server.drop_connections()


@asynccontextmanager
async def running(
    provider: Provider,
    options: ServeOptions,
    *,
    metrics: ServiceMetrics | None = None,
    trouble: Callable[[], str] = str,
    gate: Gate | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Running]:
    """Serves for as long as the block lasts: starts the provider, opens the ports, and ends both gracefully.

    ``trouble`` returns why the provider cannot be used now, for ``/readyz`` and gRPC's health service; empty when it
    can. Every call has to pass the ``gate``. With a ``tracer``, each call that
    Python answers is a span.
    """
    raise_descriptor_limit()
    metrics = metrics or ServiceMetrics()
    service = CloudProviderService(
        provider,
        deadline=options.deadline,
        force_options=options.force_options,
        metrics=metrics,
        gate=gate,
        tracer=tracer,
    )
    access = Access(
        listen=options.listen,
        tls=options.tls,
        allowed_clients=options.allowed_clients,
        insecure=options.insecure,
        limits=options.limits,
    )
    transport = choose_transport(options.transport)
    server = make_server(service, access, transport, trouble=trouble)
    metrics.transport.labels(transport.value).set(1)
    tls = server.tls
    if tls is not None:
        service.metrics.certificate_expiry.set_function(lambda: tls.expires)
    phase = "starting"
    async with AsyncExitStack() as stack:
        ops = None
        if options.ops:
            ops = OpsServer(options.ops, metrics.registry, lambda: phase or trouble(), metrics.listeners)
            # First, so that a probe gets "not ready" instead of a refused connection.
            await stack.enter_async_context(ops.running())
        stack.push_async_callback(_close, provider, options.grace)
        await provider.start()
        await server.start()
        stack.push_async_callback(server.stop, options.grace)
        phase = ""
        up = Running(server.address, ops.address if ops else None, service, server, transport)
        about = {"address": up.address, "tls": tls is not None, "transport": transport.value, "ops": up.ops_address}
        log.info("serving", extra=about)
        try:
            yield up
        finally:
            phase = "stopping"
            log.info("stopping")
    log.info("stopped")


async def _close(provider: Provider, seconds: float) -> None:
    """Closes the provider, with a timeout for one that hangs."""
    try:
        async with asyncio.timeout(seconds):
            await provider.close()
    except TimeoutError:
        log.warning("the provider did not close within %g s; stopping without it", seconds)


async def serve_until_signal(
    provider: Provider,
    options: ServeOptions,
    *,
    metrics: ServiceMetrics | None = None,
    trouble: Callable[[], str] = str,
    gate: Gate | None = None,
    beside: Callable[[Running], AbstractAsyncContextManager[None]] | None = None,
    tracer: Tracer | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, also while it starts; a second signal ends the program at once.

    The context that ``beside`` returns is entered when the server is up, and left before it stops.
    """

    @asynccontextmanager
    async def parts() -> AsyncIterator[None]:
        async with (
            running(provider, options, metrics=metrics, trouble=trouble, gate=gate, tracer=tracer) as server,
            beside(server) if beside else nullcontext(),
        ):
            settle()
            yield

    if await run_until_signal(parts()):
        log.info("stopped by a signal while starting")


def settle() -> None:
    """Tunes the interpreter for a started server: call it once.

    Existing objects are excluded from garbage collection, and full collections become rare: each walks through all
    libraries and the whole fleet. A thread that computes, such as a cloud's library that reads a long list, yields to
    the event loop after a moment. Both would delay all calls.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)


def serve(provider: Provider | BlockingProvider, options: ServeOptions | None = None) -> None:
    """Serves a provider until a signal stops the process, and prints its address on standard error. Blocks.

    The log goes to standard error too, unless the program has configured logging.

    >>> from cloudgraft.server import serve
    >>> serve(MyProvider())  # doctest: +SKIP
    """

    @asynccontextmanager
    async def tell(server: Running) -> AsyncIterator[None]:
        print(f"serving {type(provider).__name__} on {server.address}; Ctrl-C stops it", file=sys.stderr, flush=True)  # noqa: T201
        yield

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(serve_until_signal(as_provider(provider), options or ServeOptions(), beside=tell))
