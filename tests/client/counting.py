"""A real externalgrpc server that counts its calls and answers what the test says.

It is written with grpcio's threads and not with our own server, so that it can serve a client in the same thread's
event loop or in none, and so that the client is not tested against its own twin.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from cloudgraft.client import Address, CloudConfig
from cloudgraft.wire.externalgrpc import RPCS, SERVICE
from cloudgraft.wire.rpc import Rpc

Answer = Message | bytes | Exception | Callable[[Any], Message]


class StatusError(Exception):
    """An answer that is a status."""

    def __init__(self, code: grpc.StatusCode, message: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.metadata = metadata


class CountingServer:
    """Serves all 15 calls on a port of its own: an empty answer to each, unless ``answers`` has another."""

    def __init__(
        self, *, credentials: grpc.ServerCredentials | None = None, listen: str = "127.0.0.1:0", max_bytes: int = -1
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.requests: list[tuple[str, Message]] = []
        self.answers: dict[str, Answer] = {}
        self.time_remaining: list[float] = []
        self.hang: set[str] = set()  # the calls that are held until release
        self.release = threading.Event()
        self.held = threading.Semaphore(0)  # released once for every call that is being held
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(
            self._pool, options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", max_bytes)]
        )
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._handler(rpc)) for name, rpc in RPCS.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        if credentials is None:
            self.port = self._server.add_insecure_port(listen)
        else:
            self.port = self._server.add_secure_port(listen, credentials)
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def config(self) -> CloudConfig:
        return CloudConfig(address=Address.parse(self.address))

    def last_request(self, name: str) -> Any:
        return [request for rpc, request in self.requests if rpc == name][-1]

    def stop(self) -> None:
        self.release.set()
        self._server.stop(None).wait()
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _handler(self, rpc: Rpc) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def respond(data: bytes, context: grpc.ServicerContext) -> bytes:
            request = rpc.request.FromString(data)
            self.calls[rpc.name] += 1
            self.requests.append((rpc.name, request))
            self.time_remaining.append(context.time_remaining() or 0.0)
            if rpc.name in self.hang:
                self.held.release()
                self.release.wait()
            answer = self.answers.get(rpc.name, rpc.response())
            if isinstance(answer, StatusError):
                context.set_trailing_metadata(answer.metadata)
                context.abort(answer.code, answer.message)
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, bytes):
                return answer
            return (answer if isinstance(answer, Message) else answer(request)).SerializeToString()

        return respond
