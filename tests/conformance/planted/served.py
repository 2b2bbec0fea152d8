"""A planted server on a real gRPC port, with a line to it for the commands that a kit's hooks run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio

from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from cloudgraft.wire.rpc import Rpc
from tests.conformance.planted.sound import Refusal, SoundServer
from tests.conformance.planted.world import World
from tests.own_port import OWN_PORT

_METHODS: Final = {
    "NodeGroups": "groups",
    "NodeGroupForNode": "group_for_node",
    "PricingNodePrice": "node_price",
    "PricingPodPrice": "pod_price",
    "GPULabel": "gpu_label",
    "GetAvailableGPUTypes": "gpu_types",
    "Cleanup": "cleanup",
    "Refresh": "refresh",
    "NodeGroupTargetSize": "target_size",
    "NodeGroupIncreaseSize": "increase_size",
    "NodeGroupDeleteNodes": "delete_nodes",
    "NodeGroupDecreaseTargetSize": "decrease_target",
    "NodeGroupNodes": "nodes",
    "NodeGroupTemplateNodeInfo": "template",
    "NodeGroupGetOptions": "options",
}
# What a hook runs: says one word to the server's line and waits for its answer.
_SAY: Final = (
    "import socket, sys; line = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20); "
    "line.sendall(sys.argv[2].encode() + b'\\n'); sys.exit(line.recv(8) != b'done\\n')"
)


class Served:
    """One planted server, and the world that outlives its restarts."""

    def __init__(self, kind: type[SoundServer]) -> None:
        self.kind = kind
        self.world = World()
        self._server: SoundServer = kind(self.world)
        self._grpc = grpc.aio.server(options=OWN_PORT)
        self._port = 0
        self._line: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def command(self, word: str) -> list[str]:
        """The program that does what ``word`` says: restart, stall, go-on, sell-out, restock or lose ID."""
        assert self._line is not None
        return [sys.executable, "-I", "-S", "-c", _SAY, str(self._line.sockets[0].getsockname()[1]), word]

    async def start(self) -> None:
        self._line = await asyncio.start_server(self._obey, "127.0.0.1", 0)
        await self._listen()

    async def stop(self) -> None:
        await self._grpc.stop(None)
        if self._line is not None:
            self._line.close()

    async def restart(self) -> None:
        """The process ends and another begins on the same port: only the world remains."""
        await self._grpc.stop(None)
        self.world.restarts += 1
        self._server = self.kind(self.world)
        await self._listen()

    async def _listen(self) -> None:
        self._grpc = grpc.aio.server(options=OWN_PORT)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(rpc, getattr(self._server, _METHODS[name])),
                request_deserializer=rpc.request.FromString,
            )
            for name, rpc in RPCS.items()
        }
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._port = self._grpc.add_insecure_port(self.address)
        await self._grpc.start()

    def _handler(self, rpc: Rpc, method: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def respond(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            try:
                answer = await method(request)
            except Refusal as refusal:
                await context.abort(refusal.code, refusal.message)
            finally:
                self._server.heard.append(rpc.name)
            data: bytes = answer.SerializeToString()
            return data

        return respond

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = (await reader.readline()).decode().strip()
        match word:
            case "restart":
                await self.restart()
            case "stall" | "go-on":
                self.world.set_stalled(is_stalled=word == "stall")
            case "sell-out" | "restock":
                self.world.is_out_of_stock = word == "sell-out"
            case _ if word.startswith("lose "):
                self.world.lose(word.removeprefix("lose "))
            case _:
                raise AssertionError(f"no hook is called {word!r}")
        writer.write(b"done\n")
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def served(kind: type[SoundServer]) -> AsyncIterator[Served]:
    """Serves a planted server for as long as the block runs."""
    server = Served(kind)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
