"""The server to compare with: grpc.aio and nothing else, ``python -m bench.bare_server PATH=HEX ...``.

Each argument is a method's path and the bytes, in hex, that it always answers with. Nothing of cloudgraft is imported,
so that the memory of this process is that of bare gRPC.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from bench.child import arguments, serve_until_stdin_ends

Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


def constant(answer: bytes) -> Handler:
    """A method that does not look at its request."""

    async def respond(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return answer

    return respond


async def main(constants: dict[str, bytes], certificates: Path | None) -> None:
    """Serves the constants."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    for path, answer in constants.items():
        service, method = path.strip("/").split("/")
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            method: grpc.unary_unary_rpc_method_handler(constant(answer))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if certificates is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials(certificates))
    await server.start()
    await serve_until_stdin_ends(f"127.0.0.1:{port}")
    await server.stop(grace=1)


def credentials(certificates: Path) -> grpc.ServerCredentials:
    """Mutual TLS with the files in that directory."""
    pair = ((certificates / "server.key").read_bytes(), (certificates / "server.crt").read_bytes())
    authority = (certificates / "ca.crt").read_bytes()
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=True)


if __name__ == "__main__":
    words, directory = arguments(sys.argv[1:])
    pairs = (word.split("=", 1) for word in words)
    asyncio.run(main({path: bytes.fromhex(answer) for path, answer in pairs}, directory))
