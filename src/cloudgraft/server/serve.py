"""From a provider to a running server: the one line in an author's ``main()``."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cloudgraft.sdk.blocking import BlockingProvider, as_provider
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.grpc_server import GrpcServer
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.tls import TlsFiles
from cloudgraft.service import CloudProviderService

log = logging.getLogger("cloudgraft.server")


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


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up."""

    address: str
    ops_address: str | None
    service: CloudProviderService


@asynccontextmanager
async def running(provider: Provider, options: ServeOptions) -> AsyncIterator[Running]:
    """Serves for as long as the block lasts: starts the provider, opens the ports, and ends both gracefully."""
    service = CloudProviderService(provider, deadline=options.deadline, force_options=options.force_options)
    server = GrpcServer(
        service,
        listen=options.listen,
        tls=options.tls,
        allowed_clients=options.allowed_clients,
        insecure=options.insecure,
    )
    tls = server.tls
    if tls is not None:
        service.metrics.certificate_expiry.set_function(lambda: tls.expires)
    state = _State()
    ops = OpsServer(options.ops, service.metrics.registry, state.trouble) if options.ops else None
    try:
        if ops is not None:
            await ops.start()  # first, so that a probe gets "not ready" instead of a refused connection
        await provider.start()
        await server.start()
        state.reason = ""
        log.info("serving", extra={"address": server.address, "tls": options.tls is not None})
        yield Running(server.address, ops.address if ops else None, service)
    finally:
        state.reason = "stopping"
        await server.stop(options.grace)
        await provider.close()
        if ops is not None:
            await ops.stop()
        log.info("stopped")


@dataclass(slots=True)
class _State:
    reason: str = "starting"

    def trouble(self) -> str:
        return self.reason


async def serve_until_told(provider: Provider, options: ServeOptions) -> None:
    """Serves until SIGTERM or SIGINT; a second signal does not wait for calls in flight."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(provider, options):
            await stop.wait()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def serve(provider: Provider | BlockingProvider, options: ServeOptions | None = None) -> None:
    """Serves a provider until the process is told to stop. Blocks.

    >>> from cloudgraft.server import serve
    >>> serve(MyProvider())  # doctest: +SKIP
    """
    asyncio.run(serve_until_told(as_provider(provider), options or ServeOptions()))
