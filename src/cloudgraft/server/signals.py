"""Being told to stop: SIGTERM, as Kubernetes does it, or SIGINT, as a person does."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Turns the first signal into a wish to stop, and leaves the second its usual, sudden effect.

    A signal that comes before :meth:`wait` cancels the task that is still starting things: it is not waited for.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        self.while_starting = False

    def __enter__(self) -> Self:
        """Begins to listen, for the current task."""
        self._task = asyncio.current_task()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops listening."""
        self._let_go()

    async def wait(self) -> None:
        """Until a signal comes."""
        self._task = None
        await self._event.wait()

    def _told(self) -> None:
        self._let_go()
        self._event.set()
        if self._task is not None:
            self.while_starting = True
            self._task.cancel()

    def _let_go(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
