"""Long work in slices: everything once and in order, and turns for others between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk.common.event_loop import in_slices


async def _turns_of_another(items: Collection[int], size: int) -> tuple[list[tuple[int, ...]], int]:
    """The slices, and how often another task had its turn until the last of them was handed out."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    slices = [tuple(some) async for some in in_slices(items, size)]
    had = turns
    other.cancel()
    return slices, had


@given(st.lists(st.integers(), max_size=50), st.integers(min_value=1, max_value=60))
def test_every_item_comes_once_and_in_order_and_others_have_a_turn_between_slices(items: list[int], size: int) -> None:
    slices, turns = asyncio.run(_turns_of_another(items, size))
    assert [item for some in slices for item in some] == items
    assert all(len(some) == size for some in slices[:-1])
    assert all(slices)
    assert turns == max(0, len(slices) - 1)


@pytest.mark.parametrize("items", [dict.fromkeys(range(5)), deque(range(5)), range(5), {}.fromkeys(range(5)).keys()])
async def test_any_collection_will_do(items: Collection[int]) -> None:
    assert [list(some) async for some in in_slices(items, 2)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("size", [0, -1])
def test_a_slice_of_nothing_would_never_end(size: int) -> None:
    with pytest.raises(ValueError, match="at least one item"):
        in_slices([1], size)
