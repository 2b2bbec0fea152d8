"""Long messages, field by field. A parser that reads sixteen megabytes in one go holds up every other driver.

Where a message may be that long because of one field, that field is cut out first, and what is in it is read little by
little by whoever needs it. Only as much of protobuf's format is known here as that takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

__all__ = ["LARGE", "MOST_ITEMS", "cut_out", "fields", "items"]

LARGE: Final = 256 * 1024  # bytes from which on it is worth it; what is shorter is parsed in a few milliseconds
MOST_ITEMS: Final = 250_000  # in one answer: more fit into a message when they are tiny, and fill the memory
_MOST_FIELDS: Final = 1000  # beside the one that is cut out: nobody has so many who means well
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types


def cut_out(data: memoryview, *numbers: int) -> tuple[bytes, memoryview]:
    """The message with one of these fields left empty, and what was in it; raises DecodeError.

    One of them must be there, once: without it the message has no reason to be so long.
    """
    rest, found = bytearray(), list[memoryview]()
    for position, (number, content, raw) in enumerate(fields(data)):
        if number in numbers and content is not None:
            found.append(content)
            rest += bytes((number << 3 | _BYTES, 0))
        else:
            rest += raw[:LARGE]
        if position >= _MOST_FIELDS or len(rest) >= LARGE:
            raise DecodeError("too long for what it is")
    if len(found) != 1:
        raise DecodeError("too long for what it is")
    return bytes(rest), found[0]


def items(content: memoryview) -> Iterator[bytes]:
    """Those of a message whose first field is repeated; raises DecodeError.

    A second field says that there are more than these.
    """
    for number, item, _ in fields(content):
        if number == 1 and item is not None:
            yield bytes(item)
        elif number == 2 and item:
            raise DecodeError("a part only")


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """Each field: its number, what is in it if that is of any length, and all its bytes. Raises DecodeError."""
    position, end = 0, len(data)
    while position < end:
        start = position
        tag, position = _varint(data, position)
        kind, content = tag & 7, None
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            length, begin = _varint(data, position)
            position = begin + length
            content = data[begin:position]
        elif kind in {_FIXED64, _FIXED32}:
            position += 8 if kind == _FIXED64 else 4
        else:
            raise DecodeError("a field of a kind that nobody uses")
        if position > end:
            raise DecodeError("it ends in the middle of a field")
        yield tag >> 3, content, data[start:position]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number that does not end")
