"""Splits long work on the event loop into slices, so that thousands of items do not delay other calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def in_slices(items: Collection[T], size: int) -> AsyncIterator[list[T]]:
    """All items in order, ``size`` at a time; other tasks have their turn between two slices.

    There is no turn before the first slice nor after the last one, so a short list is worked through without any: who
    goes through many short lists gives turns between them. The items must not change meanwhile.
    """
    if size < 1:
        raise ValueError(f"a slice has at least one item, not {size}")
    return _Slices(items, size)


class _Slices(AsyncIterator[list[T]]):
    # Not an async generator: one that a loop leaves early, by an error or a break, is closed by the event loop later.

    def __init__(self, items: Collection[T], size: int) -> None:
        self._items = iter(items)
        self._left = len(items)
        self._size = size
        self._has_begun = False

    async def __anext__(self) -> list[T]:
        if self._left <= 0:
            raise StopAsyncIteration
        if self._has_begun:
            await asyncio.sleep(0)
        self._has_begun = True
        self._left -= self._size
        return list(islice(self._items, self._size))
