"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cloudgraft.sdk.errors import DeadlineError, PreconditionError

__all__ = ["LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines for any number of threads, on one loop, until it is closed."""

    def __init__(self, name: str) -> None:
        """Starts the thread at once. It is a daemon: a program that forgets to close it can still end."""
        self._loop = asyncio.new_event_loop()
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine to its end and returns its result; callable from any thread but the loop's own.

        When the wait is interrupted (Ctrl-C), the coroutine is cancelled too. When this is closed meanwhile, the wait
        ends with DeadlineError.
        """
        with self._guard:
            refusal = self._refusal()
            if refusal is not None:
                work.close()
                raise PreconditionError(refusal)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise DeadlineError("the client was closed during the call: what the call did is not known") from None
        except BaseException:
            future.cancel()  # without effect on one that has ended
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a last coroutine, cancels what still runs, ends the thread and closes the loop. Twice is fine."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _refusal(self) -> str | None:
        if self._closed:
            return "this client is closed: make a new one"
        if threading.current_thread() is self._thread:
            return "the sync client cannot be called from its own event loop: use the async one there"
        return None

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
