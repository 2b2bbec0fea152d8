"""Reads lists page by page. A list that may be incomplete is an error, never an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cloudgraft.sdk.errors import UnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list."""

    machines: Sequence[T]
    count: int  # how many machines this page has, according to the cloud
    more: bool  # whether another page follows
    cursor: str = ""  # where it begins


async def read_all(fetch: Callable[[str], Awaitable[Page[T]]]) -> list[T]:
    """Reads all pages, one after the other; raises UnavailableError when one of them is incomplete."""
    found: list[T] = []
    cursors = {""}
    cursor = ""
    while True:
        page = await fetch(cursor)
        if len(page.machines) != page.count:
            raise UnavailableError(
                f"the cloud sent {len(page.machines)} of the {page.count} machines of a page: the list is not complete"
            )
        found += page.machines
        if not page.more:
            return found
        cursor = page.cursor
        if cursor in cursors:
            raise UnavailableError("the cloud says that there are more pages, but not where: the list is not complete")
        cursors.add(cursor)
