"""Unary methods whose handlers are asked before the body of a call is read.

gRPC reads the body of a unary call first. A client that sends none would wait there, unseen, with as many calls as it
likes. A method that is served as one with a stream of requests is asked at once, and reads the one message itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

__all__ = ["UnknownMethods", "only_message"]

Context = grpc.aio.ServicerContext[Any, Any]


async def only_message(context: Context) -> Any:
    """The one message of a call; ends the call when there is none."""
    message = await context.read()
    if message is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a message")
    return message


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers calls of methods that no other handler of a server has; add it last.

    gRPC answers them too, but does not check the client. A client that may not call could flood a server with them, and
    no metric or log line would show it.
    """

    def __init__(self, admit: Callable[[Context, str], Awaitable[None]]) -> None:
        """``admit`` ends the call of a client that may not call; it gets the method's name too."""
        self._admit = admit

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """One for each call: clients invent the names, so nothing is kept by them."""
        method = handler_call_details.method

        async def refuse(_requests: object, context: Context) -> None:
            await self._admit(context, method)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")  # as gRPC says it

        return grpc.stream_stream_rpc_method_handler(refuse)
