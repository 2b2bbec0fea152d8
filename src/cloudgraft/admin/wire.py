"""Defines the wire format of the admin service: names, limits, and JSON objects in both directions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

SERVICE: Final = "cloudgraft.admin.v1.Admin"
LONGEST_REQUEST: Final = 4 * 1024 * 1024
LONGEST_ANSWER: Final = 64 * 1024 * 1024

_WHOLE: Final = 100  # values
_SLICE: Final = 0.002  # seconds of work before the event loop gets control


def path_of(method: str) -> str:
    """The gRPC path of a method."""
    return f"/{SERVICE}/{method}"


def decode(data: bytes) -> dict[str, object]:
    """Reads a JSON object; raises InvalidArgumentError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError("these bytes are not JSON") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError("this is JSON, but not an object")
    return value


async def encode_in_slices(value: Mapping[str, object]) -> bytes:
    """The object as JSON, without blocking the event loop while thousands of machines are encoded.

    Raises TypeError or ValueError when it is not JSON. The value must not change meanwhile.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"a JSON object is wanted, not {type(value).__name__}")
    parts: list[str] = []
    began = time.perf_counter()
    for part in _parts(value):
        parts.append(part)
        if time.perf_counter() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return "".join(parts).encode()


def _parts(value: object) -> Iterator[str]:
    """The pieces of a JSON text, each quick to make: containers of a few plain values stay whole."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("the keys of a JSON object are strings")
        if _is_plain(value.values()):
            yield _dump(dict(value))
            return
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else ''}{_dump(key)}:"
            yield from _parts(item)
        yield "}"
    elif isinstance(value, list | tuple) and not _is_plain(value):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _parts(item)
        yield "]"
    else:
        yield _dump(value)


def _is_plain(values: Collection[object]) -> bool:
    return len(values) <= _WHOLE and not any(isinstance(value, Mapping | list | tuple) for value in values)


def _dump(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
