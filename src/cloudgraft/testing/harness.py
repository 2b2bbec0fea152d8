"""Runs a real server for tests: on a loopback port, with temporary certificates if wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.sdk.blocking import BlockingProvider, as_provider
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.serve import ServeOptions, running
from cloudgraft.server.tls import TlsFiles
from cloudgraft.service import CloudProviderService


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs for as long as the block that made it."""

    address: str
    ops_address: str | None
    service: CloudProviderService
    certificates: Bundle | None

    @property
    def cloud_config(self) -> str:
        """The autoscaler's cloud-config for this server, as YAML."""
        lines = [f"address: {self.address}"]
        if self.certificates is not None:
            lines += [
                f"key: {self.certificates.client_key}",
                f"cert: {self.certificates.client_cert}",
                f"cacert: {self.certificates.ca_cert}",
            ]
        return "\n".join(lines) + "\n"


@asynccontextmanager
async def serving(
    provider: Provider | BlockingProvider, options: ServeOptions | None = None, *, mtls_in: Path | None = None
) -> AsyncIterator[Served]:
    """Serves a provider on a free port of loopback.

    With ``mtls_in``, a directory, certificates are made there and mTLS is on.
    """
    options = replace(options or ServeOptions(), listen="127.0.0.1:0")
    bundle = None
    if mtls_in is not None:
        bundle = create_bundle(mtls_in, hosts=["127.0.0.1", "localhost"])
        options = replace(
            options, tls=TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
        )
    async with running(as_provider(provider), options) as server:
        yield Served(server.address, server.ops_address, server.service, bundle)
