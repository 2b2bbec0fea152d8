"""A bounded pool of threads for calls that block.

Why not ``concurrent.futures``: its queue has no bound, so a cloud that hangs collects calls without end, and its
threads are joined when the program ends, so one hung call keeps the program from stopping.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from cloudgraft.sdk.errors import UnavailableError

__all__ = ["BlockingPool"]

P = ParamSpec("P")
T = TypeVar("T")


class BlockingPool:
    """Runs blocking calls in at most ``threads`` threads, with at most ``waiting`` calls in the queue.

    A call that would have to wait behind a full queue fails at once with :class:`UnavailableError`: better a clear
    error for one cloud than a queue that no caller will live to see the end of. A caller that gives up leaves its
    call running, since a thread cannot be stopped; the result is dropped.
    """

    def __init__(self, label: str, *, threads: int = 8, waiting: int = 64) -> None:
        self._label = label
        self._limit = threads
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=waiting)
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result, or what it raised, without blocking the event loop meanwhile."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = call(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                _post(loop, _set_exception, future, error)
            else:
                _post(loop, _set_result, future, result)

        self._submit(work)
        return await future

    def close(self) -> None:
        """Lets idle threads end. Busy ones end with their call, and never keep the program alive."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                try:
                    self._queue.put_nowait(None)
                except queue.Full:
                    break

    def _submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise UnavailableError(f"{self._label} is closed")
            try:
                self._queue.put_nowait(work)
            except queue.Full:
                raise UnavailableError(
                    f"{self._label}: all {self._limit} threads are busy and {self._queue.maxsize} calls wait; "
                    "the cloud behind it answers too slowly"
                ) from None
            if self._idle < self._queue.qsize() and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._label}-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            work = self._queue.get()
            with self._lock:
                self._idle -= 1
            if work is None:
                return
            work()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed: nobody is left to be told
        return


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        # A future cannot carry StopIteration; to the event loop it would look like the end of a coroutine.
        future.set_exception(RuntimeError("StopIteration") if isinstance(error, StopIteration) else error)
