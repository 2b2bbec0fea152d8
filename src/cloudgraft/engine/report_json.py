"""Reports as JSON, for the admin service and for whoever reads its answers."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Final

__all__ = ["as_json", "as_json_in_slices", "as_json_list", "iso"]

_SLICE: Final = 100  # items of a list that are written before others get their turn on the event loop


def iso(moment: float) -> str:
    """A time for people and programs alike: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(value: object) -> object:
    """A report as JSON: keys in camelCase, without the "is" of what is true or false."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_key(field.name): as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


async def as_json_in_slices(value: object) -> dict[str, object]:
    """The same for a large report: its lists, and the lists in them, are written some items at a time."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} is not a report")
    written: dict[str, object] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        written[_key(field.name)] = await as_json_list(item) if isinstance(item, list | tuple) else as_json(item)
    return written


async def as_json_list(items: Sequence[object]) -> list[object]:
    """A long list of reports, some items at a time."""
    written: list[object] = []
    for count, item in enumerate(items, 1):
        is_large = is_dataclass(item) and any(isinstance(getattr(item, f.name), list | tuple) for f in fields(item))
        written.append(await as_json_in_slices(item) if is_large else as_json(item))
        if count % _SLICE == 0:
            await asyncio.sleep(0)
    return written


def _key(name: str) -> str:
    first, *rest = name.removeprefix("is_").split("_")
    return first + "".join(word.capitalize() for word in rest)
