"""The output of a plugin made with go-plugin, which sends it as a gRPC stream once its handshake is done.

Somebody has to read that stream: while nobody does, a plugin that prints is blocked in its print.
"""

from __future__ import annotations

from typing import Final

import grpc.aio

from cloudgraft.plugins.host.lines import LineSplitter
from cloudgraft.plugins.host.output_log import OutputLog

__all__ = ["follow_go_output"]

_METHOD: Final = "/plugin.GRPCStdio/StreamStdio"
_CHANNEL_TAG: Final = 0x08  # field 1, a number
_DATA_TAG: Final = 0x12  # field 2, bytes
_PIECE: Final = 8192  # bytes that are looked at before others get their turn on the event loop
_STREAMS: Final = {1: "stdout", 2: "stderr"}


async def follow_go_output(channel: grpc.aio.Channel, log: OutputLog) -> None:
    """Logs what comes through the stream until it ends. Returns at once for a plugin that has none."""
    splitters = {stream: LineSplitter() for stream in _STREAMS.values()}
    method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(_METHOD)
    call = method(b"")
    try:
        async for message in call:
            stream, data = _decode(message)
            for start in range(0, len(data), _PIECE):
                await log.write(stream, list(splitters[stream].feed(data[start : start + _PIECE])))
    except (grpc.aio.AioRpcError, IndexError):  # not made with go-plugin, or gone
        return
    finally:
        call.cancel()


def _decode(message: bytes) -> tuple[str, bytes]:
    """Stream and data of go-plugin's ``StdioData``: two fields, for which generated code would be too much."""
    stream, data, position = "stdout", b"", 0
    while position < len(message):
        tag, position = _varint(message, position)
        value, position = _varint(message, position)
        if tag == _CHANNEL_TAG:
            stream = _STREAMS.get(value, stream)
        elif tag == _DATA_TAG:
            data, position = message[position : position + value], position + value
    return stream, data


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
