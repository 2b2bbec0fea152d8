"""The server in front of the world, with certificates made for this one run. It can go and come back."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.client import Address, CloudConfig
from cloudgraft.demo.world import World
from cloudgraft.server.serve import ServeOptions, running
from cloudgraft.server.tls import TlsFiles

__all__ = ["Front"]

_GRACE = 2.0  # seconds that calls in flight get when the demo is interrupted


class Front:
    """A real gRPC server on loopback, with mTLS, which serves the world's provider."""

    def __init__(self, world: World, directory: Path) -> None:
        """``directory`` is for the certificates."""
        self.address = "127.0.0.1:0"  # and once it is open, the real port, for good
        self._world = world
        self._directory = directory
        self._open = AsyncExitStack()

    @property
    def config(self) -> CloudConfig:
        """What the autoscaler's cloud-config would say."""
        files = Bundle.at(self._directory)
        return CloudConfig(
            address=Address.parse(self.address),
            key=str(files.client_key),
            cert=str(files.client_cert),
            cacert=str(files.ca_cert),
        )

    async def open(self) -> None:
        """Starts the world's provider, and serves it on the same port as before."""
        files = Bundle.at(self._directory)
        tls = TlsFiles(cert=files.server_cert, key=files.server_key, client_ca=files.ca_cert)
        options = ServeOptions(listen=self.address, tls=tls, grace=_GRACE)
        up = await self._open.enter_async_context(running(self._world.provider, options))
        self.address = up.address

    async def close(self) -> None:
        """Ends all connections and closes the port and the provider that was served."""
        await self._open.aclose()

    async def __aenter__(self) -> Self:
        """Open."""
        create_bundle(self._directory, hosts=["127.0.0.1", "localhost"])
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed."""
        await self.close()
