"""A plugin whose TLS is as its first argument says; for what is accepted, and for what must be refused.

given     the certificate that cloudgraft made for it, over TCP
none      no TLS at all
other     a certificate of its own that is not the one in its line
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import grpc
import grpc.aio

from cloudgraft.plugins.handshake import Handshake, format_line
from cloudgraft.plugins.throwaway_tls import make_key_pair

FILES = Path(os.environ["CLOUDGRAFT_PLUGIN_TLS_DIR"])


def credentials(mode: str) -> grpc.ServerCredentials:
    if mode == "other":
        own = make_key_pair()
        return grpc.ssl_server_credentials(
            [(own.key, own.certificate)], FILES.joinpath("client-ca.crt").read_bytes(), True
        )
    pair = (FILES.joinpath("server.key").read_bytes(), FILES.joinpath("server.crt").read_bytes())
    return grpc.ssl_server_credentials([pair], FILES.joinpath("client-ca.crt").read_bytes(), True)


async def main(mode: str) -> None:
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    if mode == "none":
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials(mode))
    await server.start()
    claimed = make_key_pair().der if mode == "other" else None
    print(format_line(Handshake(network="tcp", address=f"127.0.0.1:{port}", certificate=claimed)), flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
