"""Bounds on what one list of a cloud may take: machines, bytes and time.

The engine sets a budget before it asks a driver for a list. Whoever reads for the driver spends from it while the list
grows: a list without end must fail before it has filled the memory. A list that hits a bound is an error, and never a
shorter list, which would let machines seem gone. A driver that reads page by page wraps its loop::

    return [machine_of(entry) for entry in bounded(my_cloud.all_pages())]
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from cloudgraft.sdk.errors import DeadlineError, InternalError

__all__ = ["MOST_BYTES", "MOST_MACHINES", "ListBudget", "bounded", "current_budget", "spend_bytes"]

T = TypeVar("T")
MOST_MACHINES: Final = 100_000
MOST_BYTES: Final = 128 * 1024 * 1024
_EACH: Final = 256  # items between two looks at the clock


class ListBudget:
    """What one list may take. Threads of the driver may share it: a count may be a little late, and never lost."""

    def __init__(
        self,
        *,
        machines: int = MOST_MACHINES,
        size: int = MOST_BYTES,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``size`` is in bytes; without ``seconds`` it may take as long as it does."""
        self.machines = machines
        self.size = size
        self._clock = clock
        self._until = None if seconds is None else clock() + seconds
        self._read = 0

    def check_count(self, count: int) -> None:
        """Raises InternalError when a list of so many items has too many."""
        if count > self.machines:
            raise InternalError(
                f"the list has more than {self.machines} entries and is not used. If the cloud has that many, raise "
                "engine.maxListMachines of this cloud"
            )

    def check_time(self) -> None:
        """Raises DeadlineError when nobody waits for the list any more."""
        if self._until is not None and self._clock() > self._until:
            raise DeadlineError("the list took too long, or was given up")

    def spend(self, size: int) -> None:
        """Counts bytes that came in for the list; raises InternalError when it has too many."""
        self._read += size
        if self._read > self.size:
            raise InternalError(
                f"the list has more than {self.size} bytes and is not used. If the cloud's machines need that many, "
                "raise engine.maxListBytes of this cloud"
            )
        self.check_time()

    def end(self) -> None:
        """Nobody waits any more: what a thread still reads for this list ends with an error."""
        self._until = float("-inf")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, in this task and in the threads that it uses, this is the budget."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self.end()

    async def limited(self, call: Awaitable[Sequence[T]]) -> Sequence[T]:
        """What the call answers, read within this budget and of no more entries than it allows."""
        with self.applied():
            answer = await call
        if isinstance(answer, Sequence):  # what a driver answers may be anything; the caller says what is wrong with it
            self.check_count(len(answer))
        return answer


_current: ContextVar[ListBudget | None] = ContextVar("cloudgraft_list_budget", default=None)


def current_budget() -> ListBudget:
    """The budget of the list that is being read; one with the usual bounds when nobody set one."""
    return _current.get() or ListBudget()


def spend_bytes(size: int) -> None:
    """Counts bytes that came in, when they did for a list."""
    budget = _current.get()
    if budget is not None:
        budget.spend(size)


def bounded(items: Iterable[T]) -> Iterator[T]:
    """The same items, as long as the current budget allows."""
    budget = current_budget()
    for count, item in enumerate(items, 1):
        budget.check_count(count)
        if count % _EACH == 1:
            budget.check_time()
        yield item
