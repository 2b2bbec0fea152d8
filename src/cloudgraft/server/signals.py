"""Handles the signals that stop a server: SIGTERM from Kubernetes, SIGINT from a person."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Turns the first signal into a graceful stop. The second one ends the process at once, as usual.

    A signal before :meth:`wait` cancels the task that is still starting the server.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        self.while_starting = False

    def __enter__(self) -> Self:
        """Begins to handle signals, for the current task."""
        self._task = asyncio.current_task()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restores the usual handling."""
        self._restore()

    async def wait(self) -> None:
        """Waits for a signal."""
        self._task = None
        await self._event.wait()

    def _on_signal(self) -> None:
        self._restore()
        self._event.set()
        if self._task is not None:
            self.while_starting = True
            self._task.cancel()

    def _restore(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


async def run_until_signal(parts: AbstractAsyncContextManager[object]) -> bool:
    """Enters the context, and leaves it after a signal. True when the signal came while it was entered."""
    with StopSignals() as stop:
        try:
            async with parts:
                await stop.wait()
        except asyncio.CancelledError:
            if not stop.while_starting:
                raise
    return stop.while_starting


async def run_or_interrupt(
    work: Coroutine[Any, Any, T], *, on_first: Callable[[], None] = lambda: None, only_first: bool = False
) -> T | signal.Signals:
    """The result of the work, or the signal that interrupted it: also SIGHUP, when its terminal is closed.

    A signal cancels the work, which may clean up. With ``only_first`` further signals do not cancel that.
    """
    loop, received = asyncio.get_running_loop(), list[signal.Signals]()
    working = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        if not received:
            on_first()
        if not (received and only_first):
            working.cancel()
        received.append(number)

    for number in (*_SIGNALS, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    try:
        return await working
    except asyncio.CancelledError:
        if not received:
            raise
        return received[0]
    finally:
        for number in (*_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
