"""Decodes long messages field by field: parsing sixteen megabytes at once would block every other driver.

If one field can make a message that long, that field is cut out first, and its reader decodes it in steps. Implements
only the part of protobuf's wire format that this needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Final

from google.protobuf.message import DecodeError

LARGE: Final = 256 * 1024  # bytes; a shorter message is parsed in a few milliseconds
MOST_ITEMS: Final = 250_000  # in one response: more tiny ones fit into a message, and would fill the memory
LARGEST_ENTRY: Final = 64 * 1024  # bytes of one machine, shape or price, which is parsed at once
_MOST_FIELDS: Final = 1000  # other fields; only a malicious message has more
_SLICE: Final = 16 * 1024  # bytes that are read before other tasks run
_ENTRY: Final = 64  # bytes added for each entry: even the smallest takes time
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types


def cut_out(data: memoryview, *numbers: int) -> tuple[bytes, memoryview]:
    """Returns the message with one of these fields emptied, and that field's content; raises DecodeError.

    Exactly one of them must be present: without it the message has no reason to be so long.
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


class Turns:
    """Decides when other tasks should run, by the bytes read and not by the number of entries."""

    def __init__(self) -> None:
        self._read = 0

    def is_over(self, entry: Sized) -> bool:
        """Counts these bytes; True when it is time to let other tasks run."""
        self._read += len(entry) + _ENTRY
        if self._read < _SLICE:
            return False
        self._read = 0
        return True


def entries(content: memoryview, number: int, also: int) -> Iterator[tuple[int, memoryview]]:
    """Yields the entries of two repeated fields; raises DecodeError.

    Skips other fields, which belong to a later version. Limits their number: skipping millions would block others too.
    """
    strange = 0
    for position, (found, entry, _) in enumerate(fields(content)):
        if position > MOST_ITEMS + _MOST_FIELDS:
            raise DecodeError("too many, whatever they are")
        if entry is None or found not in (number, also):
            strange += 1
            if strange > _MOST_FIELDS:
                raise DecodeError("too many unknown fields")
            continue
        if found == number and len(entry) > LARGEST_ENTRY:
            raise DecodeError("too long for what it is")
        yield found, entry


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """Yields each field: its number, its content if it has a length, and all its bytes. Raises DecodeError."""
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
            raise DecodeError("a field of an unknown wire type")
        if position > end:
            raise DecodeError("it ends in the middle of a field")
        yield tag >> 3, content, data[start:position]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Decodes a number; returns it and the position after it."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number that does not end")
