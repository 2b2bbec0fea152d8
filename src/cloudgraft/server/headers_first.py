"""Unary methods whose handlers are asked before the body of a call is read.

gRPC reads the body of a unary call first. A client that sends none would wait there, unseen, with as many calls as it
likes. A method that is served as one with a stream of requests is asked at once, and reads the one message itself.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

__all__ = ["only_message"]


async def only_message(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """The one message of a call; ends the call when there is none."""
    message = await context.read()
    if message is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a message")
    return message
