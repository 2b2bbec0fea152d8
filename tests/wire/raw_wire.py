"""The protobuf wire format by hand: field numbers and bytes, without any of our messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    number &= 2**64 - 1  # negative numbers are sent as their two's complement
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, value: int | bytes | str) -> bytes:
    """One field: a number as a varint, text and bytes (so messages too) with their length."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    payload = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def mapping(number: int, entries: Iterable[tuple[str, str | bytes]]) -> bytes:
    """A map field: one little message per entry."""
    return b"".join(field(number, message((1, key), (2, value))) for key, value in entries)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in their order."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if size is None:
            assert kind == BYTES, f"field {number} has the wire type {kind}"
            size, position = _read_varint(data, position)
        assert position + size <= len(data), f"field {number} is cut off"
        yield number, data[position : position + size]
        position += size


def at(data: bytes, *path: int) -> list[int | bytes]:
    """Every value at a path of field numbers."""
    found = [value for number, value in fields(data) if number == path[0]]
    if len(path) == 1:
        return found
    return [inner for value in found if isinstance(value, bytes) for inner in at(value, *path[1:])]


def texts(data: bytes, *path: int) -> list[str]:
    """Every text at a path of field numbers."""
    return [value.decode() for value in at(data, *path) if isinstance(value, bytes)]


def text_map(data: bytes, *path: int, value_path: tuple[int, ...] = (2,)) -> dict[str, str]:
    """The map at a path, with the text found in each entry under ``value_path``."""
    entries = [value for value in at(data, *path) if isinstance(value, bytes)]
    return {texts(entry, 1)[0]: texts(entry, *value_path)[0] for entry in entries}


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, position
        shift += 7
