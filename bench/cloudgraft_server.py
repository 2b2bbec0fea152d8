"""The server that is measured: what ``cloudgraft serve`` runs, ``python -m bench.cloudgraft_server NODES``.

With certificates, only the autoscaler's client may call, as one would run it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.child import arguments, serve_until_stdin_ends
from bench.cluster import Cluster
from bench.provider import BenchProvider
from cloudgraft.certs.authority import Bundle
from cloudgraft.certs.defaults import DEFAULT_CLIENT
from cloudgraft.server.serve import ServeOptions, running
from cloudgraft.server.tls import TlsFiles


async def main(nodes: int, certificates: Path | None) -> None:
    """Serves a cluster of that many nodes."""
    async with running(BenchProvider(Cluster.of_size(nodes)), options(certificates)) as server:
        await serve_until_stdin_ends(server.address)


def options(certificates: Path | None) -> ServeOptions:
    """How to serve: on a free port, with mTLS when there are certificates."""
    if certificates is None:
        return ServeOptions(listen="127.0.0.1:0")
    files = Bundle.at(certificates)
    tls = TlsFiles(cert=files.server_cert, key=files.server_key, client_ca=files.ca_cert)
    return ServeOptions(listen="127.0.0.1:0", tls=tls, allowed_clients=(DEFAULT_CLIENT,))


if __name__ == "__main__":
    words, directory = arguments(sys.argv[1:])
    asyncio.run(main(int(words[0]), directory))
