"""Keeps the event loop free: calls are bounded in time, blocking ones run in threads, long work runs in slices."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextvars import ContextVar
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from cloudgraft.sdk.errors import CloudgraftError, UnavailableError

# -- Runs blocking calls in a bounded pool of threads ------------------------------------------------------------------
# ``concurrent.futures`` does not fit. Its queue has no limit, so a hung cloud collects calls without end. Its threads
# are joined when the program ends, so one hung call keeps the program from stopping.


P = ParamSpec("P")
T = TypeVar("T")


class BlockingPool:
    """Runs blocking calls in at most ``threads`` threads, with at most ``waiting`` calls in the queue.

    A call that finds the queue full fails at once with :class:`UnavailableError`: a clear error for one cloud is better
    than a queue whose callers have all timed out. When a caller gives up before a thread has taken its call, the call
    never runs. Later it runs to its end, since a thread cannot be stopped, and its result is dropped. A call runs in
    its caller's context: code that reads for a list finds its budget there (:mod:`cloudgraft.sdk.list_budget`), and
    ends when the list is given up.
    """

    def __init__(self, label: str, *, threads: int = 8, waiting: int = 64) -> None:
        self._label = label
        self._limit = threads
        self._waiting = waiting
        self._lock = threading.Condition()
        self._queue: deque[_Call] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the call's result or raises its error, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()  # such as the budget of a list
        queued = _Call(functools.partial(context.run, functools.partial(call, *args, **kwargs)), loop, future)
        self._submit(queued)
        try:
            return await future
        except asyncio.CancelledError:
            with self._lock, contextlib.suppress(ValueError):
                self._queue.remove(queued)  # ValueError: a thread has taken it, and it runs to its end
            raise

    def close(self) -> None:
        """Ends idle threads. Busy ones end with their call, and never keep the program alive."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def _submit(self, call: _Call) -> None:
        with self._lock:
            if self._closed:
                raise UnavailableError(f"{self._label} is closed")
            if len(self._queue) >= self._waiting:
                raise UnavailableError(
                    f"{self._label}: all {self._limit} threads are busy and {self._waiting} calls wait; "
                    "the cloud behind it answers too slowly"
                )
            self._queue.append(call)
            if len(self._queue) > self._idle and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._label}-{self._threads}", daemon=True).start()
            else:
                self._lock.notify()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.perform()

    def _next(self) -> _Call | None:
        with self._lock:
            self._idle += 1
            while not self._queue:
                if self._closed:
                    return None
                self._lock.wait()
            self._idle -= 1
            return self._queue.popleft()


class _Call:
    """One call on its way through the pool."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._call = call
        self._loop = loop
        self._future = future

    def perform(self) -> None:
        try:
            result = self._call()
        except Exception as error:  # noqa: BLE001 - the caller handles it, whatever it is
            self._post(self._set_exception, error)
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a thread must not end the program
            self._post(self._set_exception, RuntimeError(type(error).__name__))
        else:
            self._post(self._set_result, result)

    def _post(self, call: Callable[[Any], None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no caller left
            self._loop.call_soon_threadsafe(call, value)

    def _set_result(self, result: object) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def _set_exception(self, error: Exception) -> None:
        if not self._future.done():
            # A future cannot carry StopIteration; to the event loop it would look like the end of a coroutine.
            self._future.set_exception(RuntimeError("StopIteration") if isinstance(error, StopIteration) else error)


# -- Splits long work on the event loop into slices, so that thousands of items do not delay other calls ---------------


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


# -- contain -----------------------------------------------------------------------------------------------------------
# Bounds a call of an author's code: what its failure ends, how long it takes, whether its caller still waits.


class EscapedError(RuntimeError):
    """An author's code raised something that would have ended more than its call."""


async def contained(call: Awaitable[T]) -> T:
    """Returns the call's result or raises an Exception, whatever the call raises.

    ``sys.exit()`` in a provider would end the server. A library that cancels its own task would look like a caller that
    gave up, and the real caller would never get an answer. Only a cancellation of our own task passes through.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EscapedError("a task within the call was cancelled") from error
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise EscapedError(f"the call raised {type(error).__name__}") from error


async def within(
    seconds: float,
    call: Callable[[], Awaitable[T]],
    *,
    late: Callable[[], CloudgraftError],
    failed: Callable[[Exception], CloudgraftError],
) -> T:
    """The call's result within so many seconds, or a CloudgraftError, whatever it does.

    The call's own CloudgraftError goes through. ``late`` makes the error for a call that takes longer. ``failed`` makes
    the error for any other exception, a TimeoutError of the call's own among them, and may log it.
    """
    limit = asyncio.timeout(seconds)
    token = _timer.set(CallTimer(limit, seconds, _timer.get()))
    try:
        async with limit:
            return await contained(call())
    except CloudgraftError:
        raise
    except Exception as error:
        raise (late() if limit.expired() else failed(error)) from error
    finally:
        _timer.reset(token)


class CallTimer:
    """The timeout around a call. Code within the call stops it while the call waits for its turn.

    A call that was not sent yet must not time out as one whose outcome is unknown.
    """

    def __init__(
        self, limit: asyncio.Timeout | None = None, seconds: float = 0.0, outer: CallTimer | None = None
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._outer = outer

    def hold(self, longest: float) -> None:
        """The call waits for its turn: it has so many more seconds, at most."""
        self._set(longest)

    def restart(self) -> None:
        """The call begins now: it has its full time."""
        self._set(0.0)

    def _set(self, more: float) -> None:
        if self._limit is not None:
            with contextlib.suppress(RuntimeError):  # the timeout is over
                self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds + more)
        if self._outer is not None:
            self._outer._set(more)  # noqa: SLF001 - of the same class


_timer: ContextVar[CallTimer | None] = ContextVar("cloudgraft_call_timer", default=None)


def call_timer() -> CallTimer:
    """Returns the timer of the current call; one that does nothing when there is none."""
    return _timer.get() or CallTimer()


# -- Tracks whether the caller of a change still waits for it ----------------------------------------------------------
# A change that has begun is completed, whatever its caller does. A change that is still queued when the caller gives up
# must not begin: the caller has already seen it fail (R45).


def _never() -> bool:
    return False


_has_left: ContextVar[Callable[[], bool]] = ContextVar("cloudgraft_caller_has_left", default=_never)


def follow_caller(has_left: Callable[[], bool]) -> None:
    """Sets how to find out whether the caller has given up, for this task and the tasks that it starts."""
    _has_left.set(has_left)


def caller_has_left() -> bool:
    """Returns True when the caller has stopped waiting; False also when there never was a caller."""
    return _has_left.get()()
