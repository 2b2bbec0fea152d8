"""Limits the machines, bytes and time of one list of a cloud.

The engine sets a budget before it asks a driver for a list. Code that reads for the driver spends from it while the
list grows: an endless list must fail before it fills the memory. A list that exceeds a limit is an error, never a
shorter list, because missing machines would look deleted. A driver that reads page by page wraps its loop::

    return [machine_of(entry) for entry in bounded(my_cloud.all_pages())]
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from cloudgraft.sdk.errors import DeadlineError, InternalError

T = TypeVar("T")
MOST_MACHINES: Final = 100_000
MOST_BYTES: Final = 128 * 1024 * 1024
_EACH: Final = 256  # items between two checks of the clock


class ListBudget:
    """The limits of one list. Threads of the driver may share it: a count may be slightly late, but is never lost."""

    def __init__(
        self,
        *,
        machines: int = MOST_MACHINES,
        size: int = MOST_BYTES,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``size`` is in bytes; without ``seconds`` there is no time limit."""
        self.machines = machines
        self.size = size
        self._clock = clock
        self._until = None if seconds is None else clock() + seconds
        self._read = 0

    def check_count(self, count: int) -> None:
        """Raises InternalError when a list of ``count`` items is too long."""
        if count > self.machines:
            raise InternalError(
                f"the list has more than {self.machines} entries and is not used. If the cloud has that many, raise "
                "engine.maxListMachines of this cloud"
            )

    def check_time(self) -> None:
        """Raises DeadlineError when the list's time is over or its caller gave up."""
        if self._until is not None and self._clock() > self._until:
            raise DeadlineError("the list took too long, or was given up")

    def spend(self, size: int) -> None:
        """Counts bytes received for the list; raises InternalError when there are too many."""
        self._read += size
        if self._read > self.size:
            raise InternalError(
                f"the list has more than {self.size} bytes and is not used. If the cloud's machines need that many, "
                "raise engine.maxListBytes of this cloud"
            )
        self.check_time()

    def end(self) -> None:
        """Marks the list as given up: a thread that still reads for it gets an error."""
        self._until = float("-inf")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Makes this the current budget in this task and in the threads that it uses."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self.end()

    async def limited(self, call: Awaitable[Sequence[T]]) -> Sequence[T]:
        """Awaits the call within this budget, and returns its result if it has no more entries than allowed."""
        with self.applied():
            answer = await call
        if isinstance(answer, Sequence):  # a driver may return anything; the caller reports what is wrong
            self.check_count(len(answer))
        return answer


_current: ContextVar[ListBudget | None] = ContextVar("cloudgraft_list_budget", default=None)


def current_budget() -> ListBudget:
    """Returns the budget of the list that is being read, or one with the default limits when none is set."""
    return _current.get() or ListBudget()


def spend_bytes(size: int) -> None:
    """Counts received bytes when they belong to a list."""
    budget = _current.get()
    if budget is not None:
        budget.spend(size)


def bounded(items: Iterable[T]) -> Iterator[T]:
    """Yields the same items as long as the current budget allows."""
    budget = current_budget()
    for count, item in enumerate(items, 1):
        budget.check_count(count)
        if count % _EACH == 1:
            budget.check_time()
        yield item
