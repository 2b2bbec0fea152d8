"""Chooses the transport of the autoscaler's listener: the native one where it is installed, else grpcio's."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Protocol

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.server.grpc_server import GrpcServer
from cloudgraft.server.listener import Access
from cloudgraft.server.tls import ReloadingCredentials
from cloudgraft.service import CloudProviderService


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
            "server.transport is native, and cloudgraft-native is not installed: `pip install 'cloudgraft[native]'`, "
            "or say auto or grpcio"
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
