"""Listens for drivers that dial in, and for remote engines."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry

from cloudgraft.dock.access import CallerAccess, Context
from cloudgraft.dock.hub.service import listener_limits, server_options
from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.net.connections import UNKNOWN, ListenerMetrics
from cloudgraft.sdk.errors import AuthenticationError, UnavailableError
from cloudgraft.server.clients import ConnectionWatch, UnknownMethods
from cloudgraft.server.listener import abort, check_exposure, has_port
from cloudgraft.server.tls import ReloadingCredentials, ServerFiles


class DockListener:
    """One listening address. It can be reopened after it was closed."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        *,
        listen: str,
        tls: ServerFiles | None,
        settings: HubSettings,
        access: CallerAccess,
        metrics: ListenerMetrics | None = None,
    ) -> None:
        """Reads the certificates. Without TLS, only a loopback address is accepted (law 9).

        ``access`` authenticates the callers. The handlers check them; the listener checks callers of unknown methods.
        """
        check_exposure(listen, secure=tls is not None, insecure=False)
        self._handlers = handlers
        self._access = access
        self._listen = listen
        self._tls = ReloadingCredentials(tls) if tls is not None else None
        self._options = server_options(settings)
        limits = listener_limits(settings)
        self._calls = limits.calls
        metrics = metrics or ListenerMetrics(CollectorRegistry())
        self.watch = ConnectionWatch(limits.allowed_connections, metrics.refusals("dock"), UNKNOWN)
        metrics.watch("dock", self.watch.count, limits.allowed_connections)
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def is_open(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self._tls is not None

    @property
    def address(self) -> str:
        """The address that it listens at, with the real port."""
        host, colon, port = self._listen.rpartition(":")
        return f"{host}{colon}{self._port or port}"

    async def open(self) -> None:
        """Opens the port; raises UnavailableError when the port is not available."""
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=self._calls)
        server.add_generic_rpc_handlers((*self._handlers, UnknownMethods(self._admit)))
        try:
            if self._tls is None:
                self._port = server.add_insecure_port(self.address)
            else:
                self._port = server.add_secure_port(self.address, self._tls.server_credentials())
        except RuntimeError as error:
            raise UnavailableError(
                f"cannot listen on {self.address}: is another program using it, or is it not an address of this host?"
            ) from error
        await server.start()
        self._server = server
        if has_port(self._listen):
            self.watch.start(self._port)

    async def _admit(self, context: Context, _method: str) -> None:
        if self._access.identify(context) is None:
            error = AuthenticationError("the dock does not know this caller: it needs a certificate or a token")
            await abort(context, error)

    async def close(self, grace: float) -> None:
        """Rejects new calls, and cancels those under way after this many seconds."""
        server, self._server = self._server, None
        self.watch.stop()
        if server is not None:
            await server.stop(grace)
