"""HTTP/2 frames, written by hand: a client that breaks rules cannot be made of a library that keeps them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
INITIAL_WINDOW_SIZE = 0x4
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
_CANCEL = 8


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Headers of a gRPC call, in HPACK without its table and without Huffman codes."""
    block = b"\x83\x87"  # :method POST, :scheme https
    block += b"\x04" + _text(path) + b"\x01" + _text("localhost")
    for name, value in (("content-type", "application/grpc"), ("te", "trailers"), *extra):
        block += b"\x00" + _text(name) + _text(value)
    return block


def headers(stream: int, block: bytes, *, ends_headers: bool = True) -> bytes:
    return frame(HEADERS, END_HEADERS if ends_headers else 0, stream, block)


def continuation(stream: int, block: bytes, *, ends_headers: bool = False) -> bytes:
    return frame(CONTINUATION, END_HEADERS if ends_headers else 0, stream, block)


def data(stream: int, payload: bytes, *, ends_stream: bool = False) -> bytes:
    return frame(DATA, END_STREAM if ends_stream else 0, stream, payload)


def settings(values: Mapping[int, int] = MappingProxyType({})) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in values.items()))


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", more))


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))


def ping() -> bytes:
    return frame(PING, 0, 0, b"\0" * 8)


def split(buffer: bytearray) -> list[tuple[int, int, int, bytes]]:
    """Takes the whole frames from the beginning of a buffer: kind, flags, stream, payload."""
    found = []
    while len(buffer) >= 9:
        length = int.from_bytes(buffer[:3], "big")
        if len(buffer) < 9 + length:
            break
        kind, flags, stream = struct.unpack(">BBI", buffer[3:9])
        found.append((kind, flags, stream & 0x7FFFFFFF, bytes(buffer[9 : 9 + length])))
        del buffer[: 9 + length]
    return found


def _text(value: str) -> bytes:
    raw = value.encode()
    return _number(len(raw)) + raw


def _number(value: int) -> bytes:
    """An HPACK integer with a prefix of seven bits."""
    if value < 127:
        return bytes([value])
    value -= 127
    out = bytearray([127])
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)
