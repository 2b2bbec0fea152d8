"""The server to compare with: a bare grpc.aio stream that sends everything back, ``python -m bench.dock_echo_server``.

Nothing of cloudgraft is imported, so that the memory of this process is that of bare gRPC. It does not even look into
the messages: nothing that answers every message does less.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from bench.dock_child import obey, settle

__all__: list[str] = []


async def echo(
    requests: AsyncIterator[bytes], _context: grpc.aio.ServicerContext[bytes, bytes]
) -> AsyncIterator[bytes]:
    """As anybody would write it."""
    async for request in requests:
        yield request


async def main() -> None:
    """Serves until its input ends."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settle()
    await obey({"address": f"127.0.0.1:{port}"}, _nothing)
    await server.stop(grace=0)


async def _nothing(_command: dict[str, Any]) -> dict[str, Any]:
    return {}


if __name__ == "__main__":
    asyncio.run(main())
