"""A deterministic event loop with virtual time: it never waits, it jumps to the next timer.

Every callback belongs to the simulated process in whose context it was scheduled. A process that was killed runs
nothing any more, not even ``finally`` blocks, as after kill -9. A frozen one runs its callbacks when it thaws.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")
_RESOLUTION: Final = 0.001  # seconds: a real loop's wait is rounded up to a millisecond
_BOOTED: Final = 1000.0  # seconds before a run begins, its machines were started
_MOST_STEPS: Final = 100_000  # without any time passing


class StandstillError(RuntimeError):
    """Nothing is scheduled although the run is not over, or so much that no time passes."""


class Host:
    """A process on a machine of its own, with its own clocks. Killed, frozen and set wrong by a plan."""

    def __init__(self, loop: VirtualLoop, name: str, *, epoch: float) -> None:
        """``epoch`` is what a right clock on the wall shows when the loop's time is 0."""
        self.name = name
        self.born = loop.time()
        self.is_dead = False
        self.is_frozen = False
        self.steps_left: int | None = None  # callbacks until it dies
        self.wall_offset = 0.0
        self.drift = 0.0  # seconds too fast, per second
        self._loop = loop
        self._epoch = epoch
        self._ran, self._since = _BOOTED, 0.0
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, self)
        self._held: list[events.Handle] = []
        loop.hosts.append(self)
        self._tasks: list[asyncio.Future[Any]] = []  # kept: a task that is collected runs its `finally` blocks
        self.on_death: Callable[[], None] = lambda: None

    def wall(self) -> float:
        """What time.time() shows here."""
        return self._epoch + self.ran() - _BOOTED + self.wall_offset

    def ran(self) -> float:
        """What CLOCK_MONOTONIC and CLOCK_BOOTTIME show here."""
        return self._ran + (self._loop.time() - self._since) * (1 + self.drift)

    def set_drift(self, drift: float) -> None:
        """The clocks run faster from now on, or slower; they do not jump."""
        self._ran, self._since, self.drift = self.ran(), self._loop.time(), drift

    def clocks_of(self, other: Host | None) -> None:
        """Goes on with the clocks of the machine on which another process ran before."""
        if other is not None:
            self._ran, self._since, self.drift = other._ran, other._since, other.drift

    def kill(self) -> None:
        """Ends it as kill -9 does."""
        if not self.is_dead:
            self.is_dead = True
            self._held.clear()
            self._loop.outside(self.on_death)

    def kill_after(self, steps: int) -> None:
        """Ends it after so many more of its callbacks: at any await."""
        self.steps_left = steps

    def freeze(self) -> None:
        """Stops it, as SIGSTOP or a suspended machine does."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Lets it go on; what came meanwhile is run now."""
        self.is_frozen = False
        held, self._held = self._held, []
        self._loop.put_back(held)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task of this process."""
        return self._loop.create_task(work, name=name, context=self._context.copy())

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Calls back soon, in this process."""
        self._loop.call_soon(callback, *args, context=self._context)

    def inside(self, question: Callable[[], T]) -> T:
        """The answer, by the clocks of this process."""
        return self._context.copy().run(question)

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Remembers a task for as long as the run lasts."""
        self._tasks.append(task)
        if len(self._tasks) % 512 == 0:
            self._tasks = [task for task in self._tasks if not task.done()]

    def abandon(self) -> None:
        """The run is over. What never began is closed, or else it would complain that nobody had awaited it."""
        for task in self._tasks:
            if not task.done() and isinstance(task, asyncio.Task):
                _close_unbegun(task.get_coro())

    def admits(self, handle: events.Handle) -> bool:
        """Whether a callback of this process may run now."""
        if self.is_dead:
            return False
        if self.is_frozen:
            self._held.append(handle)
            return False
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                self.kill()
                return False
        return True


def _close_unbegun(work: object) -> None:
    """Closes a coroutine that has not run a step, and those that it was given; others have ``finally`` blocks."""
    if not inspect.iscoroutine(work) or inspect.getcoroutinestate(work) != inspect.CORO_CREATED:
        return
    given = {} if work.cr_frame is None else work.cr_frame.f_locals
    for value in list(given.values()):
        _close_unbegun(value)
    work.close()


CURRENT: Final[ContextVar[Host | None]] = ContextVar("CURRENT", default=None)
_NUMBERS = itertools.count(1)


class _Task(asyncio.Task[Any]):
    """Hashed by a number and not by its address, so that sets of tasks have the same order in every run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order in which they became due; time passes only between them."""

    # Of asyncio's own loop.
    _ready: deque[Any]
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        self.steps = self._moved_at = 0
        self.hosts: list[Host] = []  # every process that there was, the dead ones too
        self._outside = contextvars.Context()
        self.set_exception_handler(self._on_exception)
        self.errors: list[str] = []  # of callbacks that nobody waited for

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def outside(self, callback: Callable[..., object], *args: object) -> events.Handle:
        """Calls back soon, outside of every process."""
        return self.call_soon(callback, *args, context=self._outside)

    def later(self, seconds: float, callback: Callable[..., object], *args: object) -> events.TimerHandle:
        """Calls back after a while, outside of every process: what a cloud does, nobody's death undoes."""
        return self.call_at(self._now + seconds, callback, *args, context=self._outside)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task that belongs to no process."""
        return self.create_task(work, name=name, context=self._outside.copy())

    def abandon(self) -> None:
        """The run is over, for all processes."""
        while self.hosts:
            self.hosts.pop().abandon()

    def put_back(self, handles: list[events.Handle]) -> None:
        """Makes callbacks ready that were held back."""
        self._ready.extend(handles)

    def create_task(
        self, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], *, name: object = None, context: Any = None
    ) -> asyncio.Task[Any]:
        """As asyncio's, in an order that does not depend on addresses."""
        task = _Task(coro, loop=self, name=name or "task", context=context)
        host = (context or contextvars.copy_context()).get(CURRENT)
        if host is not None:
            host.keep(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        """As asyncio's, in an order that does not depend on addresses."""
        return _Future(loop=self)

    def _check_closed(self) -> None:
        """What the processes leave behind at the end of a run may still schedule something: nobody runs it."""

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready:
            if not scheduled:
                raise StandstillError("nothing is scheduled any more")
            if scheduled[0]._when > self._now:
                self._now = max(scheduled[0]._when, self._now + _RESOLUTION)
                self._moved_at = self.steps
        while scheduled and scheduled[0]._when <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        if self.steps - self._moved_at > _MOST_STEPS:
            raise StandstillError(f"{_MOST_STEPS} steps at {self._now:.3f} s, and no time passes")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            host = handle._context.get(CURRENT)
            if host is None or host.admits(handle):
                self.steps += 1
                handle._run()

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Cancelled timers leave when their time comes, as long as there are not too many of them."""
        self._timer_cancelled_count += 1
        if self._timer_cancelled_count > 512 and self._timer_cancelled_count * 2 > len(self._scheduled):
            for old in self._scheduled:
                old._scheduled = not old._cancelled
            self._scheduled = [old for old in self._scheduled if not old._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message", ""))
        if "was destroyed but it is pending" not in message:
            self.errors.append(f"{message}: {context.get('exception')!r}")
