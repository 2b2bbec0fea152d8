"""Long messages, field by field. A parser that reads sixteen megabytes in one go holds up every other driver.

Where a message may be that long because of one field, that field is cut out first, and what is in it is read little by
little by whoever needs it. Only as much of protobuf's format is known here as that takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Final

from google.protobuf.message import DecodeError

__all__ = ["LARGE", "LARGEST_ENTRY", "MOST_ITEMS", "Turns", "cut_out", "entries", "fields"]

LARGE: Final = 256 * 1024  # bytes from which on it is worth it; what is shorter is parsed in a few milliseconds
MOST_ITEMS: Final = 250_000  # in one answer: more fit into a message when they are tiny, and fill the memory
LARGEST_ENTRY: Final = 64 * 1024  # bytes of one machine, shape or price: it is parsed in one go
_MOST_FIELDS: Final = 1000  # beside those that are wanted: nobody has so many who means well
_SLICE: Final = 16 * 1024  # bytes that are read in a row, before others have their turn
_ENTRY: Final = 64  # bytes that an entry counts more than it has: the smallest takes its time as well
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


class Turns:
    """When others should have their turn: by what was read, and not by how many it was."""

    def __init__(self) -> None:
        self._read = 0

    def is_over(self, entry: Sized) -> bool:
        """Whether enough was read in a row, with this."""
        self._read += len(entry) + _ENTRY
        if self._read < _SLICE:
            return False
        self._read = 0
        return True


def entries(content: memoryview, number: int, also: int) -> Iterator[tuple[int, memoryview]]:
    """What is in the repeated field of that number, and in one more; raises DecodeError.

    Other fields are of a later version, and left out. There are never many: leaving out millions holds others up too.
    """
    strange = 0
    for position, (found, entry, _) in enumerate(fields(content)):
        if position > MOST_ITEMS + _MOST_FIELDS:
            raise DecodeError("too many, whatever they are")
        if entry is None or found not in (number, also):
            strange += 1
            if strange > _MOST_FIELDS:
                raise DecodeError("too many fields that nobody knows")
            continue
        if found == number and len(entry) > LARGEST_ENTRY:
            raise DecodeError("too long for what it is")
        yield found, entry


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
