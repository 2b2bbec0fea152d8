"""Converts reports to JSON for the admin service and its clients."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic.alias_generators import to_camel

_SLICE: Final = 100  # items of a list that are converted before the event loop gets control


def iso(moment: float) -> str:
    """A time in RFC 3339: UTC, whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(value: object) -> object:
    """A report as JSON: keys in camelCase, without the "is" of booleans."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_key(field.name): as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


async def as_json_in_slices(value: object) -> dict[str, object]:
    """The same for a large report, without blocking the event loop."""
    return await _Writer().report(value)


async def as_json_list(items: Sequence[object]) -> list[object]:
    """A long list of reports, in slices too."""
    return await _Writer().items(items)


class _Writer:
    """Counts the converted items, over all nested lists."""

    def __init__(self) -> None:
        self._written = 0

    async def report(self, value: object) -> dict[str, object]:
        if not is_dataclass(value) or isinstance(value, type):
            raise TypeError(f"{type(value).__name__} is not a report")
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        return {
            _key(name): await self.items(item) if isinstance(item, list | tuple) else as_json(item)
            for name, item in values.items()
        }

    async def items(self, items: Sequence[object]) -> list[object]:
        written: list[object] = []
        for item in items:
            written.append(await self.report(item) if is_dataclass(item) else as_json(item))
            self._written += 1
            if self._written % _SLICE == 0:
                await asyncio.sleep(0)
        return written


@functools.cache  # names of fields are few, and a report has thousands of machines
def _key(name: str) -> str:
    return to_camel(name.removeprefix("is_"))
