"""From a provider to a running server: the one line in an author's ``main()``."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass

from cloudgraft.net.descriptors import raise_descriptor_limit
from cloudgraft.sdk.blocking import BlockingProvider, as_provider
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.listener import Access, ListenerLimits
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.signals import StopSignals
from cloudgraft.server.tls import TlsFiles
from cloudgraft.server.transport import AutoscalerServer, Transport, choose_transport, make_server
from cloudgraft.service import CloudProviderService
from cloudgraft.service.metrics import ServiceMetrics

log = logging.getLogger("cloudgraft.server")
# New objects until the youngest are looked at, and how often that happens until older ones are too. A list of some
# thousand machines alone would have all looked at again and again; what is dropped in a circle is mostly young.
_COLLECT_AFTER = (2000, 10, 1000)
_SWITCH_SECONDS = 0.001  # that one thread may compute while others wait; the interpreter's own default is 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve. The defaults are safe: loopback only, until there is TLS."""

    listen: str = "127.0.0.1:8086"
    tls: TlsFiles | None = None
    allowed_clients: Collection[str] = ()  # by SAN or CN; empty: every client with a certificate of client_ca
    insecure: bool = False  # serve other hosts without TLS
    ops: str | None = None  # address of /metrics, /healthz, /readyz; None for none
    deadline: float = 30.0  # seconds; the longest any call may take
    grace: float = 10.0  # seconds that calls in flight get at the end
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
        """Ends all connections at once, so that clients connect anew: to the leader, when this one no longer leads.

        Calls in flight end with UNAVAILABLE. The same address is listened on again. Safe at any time, also twice.
        """
        await self.server.drop_connections()


@asynccontextmanager
async def running(
    provider: Provider,
    options: ServeOptions,
    *,
    metrics: ServiceMetrics | None = None,
    trouble: Callable[[], str] = str,
    gate: Callable[[], None] | None = None,
) -> AsyncIterator[Running]:
    """Serves for as long as the block lasts: starts the provider, opens the ports, and ends both gracefully.

    ``trouble`` gives the reason why the provider cannot be used now, for ``/readyz`` and gRPC's health service; an
    empty string for none. ``gate`` is asked before every call, and raises when nothing may be answered.
    """
    raise_descriptor_limit()
    metrics = metrics or ServiceMetrics()
    service = CloudProviderService(
        provider, deadline=options.deadline, force_options=options.force_options, metrics=metrics, gate=gate
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
            await ops.start()  # first, so that a probe gets "not ready" instead of a refused connection
            stack.push_async_callback(ops.stop)
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
    """Closes the provider, but does not wait for ever for one that hangs."""
    try:
        async with asyncio.timeout(seconds):
            await provider.close()
    except TimeoutError:
        log.warning("the provider did not close within %g s; it is left", seconds)


async def serve_until_told(
    provider: Provider,
    options: ServeOptions,
    *,
    metrics: ServiceMetrics | None = None,
    trouble: Callable[[], str] = str,
    gate: Callable[[], None] | None = None,
    beside: Callable[[Running], AbstractAsyncContextManager[None]] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, also while it starts; a second signal ends the program at once.

    What ``beside`` makes is entered when the server is up, and left before it goes.
    """
    with StopSignals() as told:
        try:
            async with (
                running(provider, options, metrics=metrics, trouble=trouble, gate=gate) as server,
                beside(server) if beside else nullcontext(),
            ):
                settle()
                await told.wait()
        except asyncio.CancelledError:
            if not told.while_starting:
                raise
            log.info("told to stop while starting")


def settle() -> None:
    """Arranges the interpreter for a program that is up and has calls to answer: call it once.

    What is there now stays for good, and full garbage collections become rare: each walks through all libraries and
    the whole fleet. And a thread that computes, such as a cloud's library that reads a long list, gives way to the
    event loop after a moment. Both would hold up all calls.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)


def serve(provider: Provider | BlockingProvider, options: ServeOptions | None = None) -> None:
    """Serves a provider until the process is told to stop, and says where on standard error. Blocks.

    The log goes to standard error too, unless the program has set up logging of its own.

    >>> from cloudgraft.server import serve
    >>> serve(MyProvider())  # doctest: +SKIP
    """

    @asynccontextmanager
    async def tell(server: Running) -> AsyncIterator[None]:
        print(f"serving {type(provider).__name__} on {server.address}; Ctrl-C stops it", file=sys.stderr, flush=True)  # noqa: T201
        yield

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(serve_until_told(as_provider(provider), options or ServeOptions(), beside=tell))
