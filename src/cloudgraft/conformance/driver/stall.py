"""Whether something blocks the event loop, and where. Judged by a second thread: a busy computer is no proof."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
import traceback
from types import TracebackType
from typing import Self

__all__ = ["StallWatch"]

_TICK = 0.02  # seconds
_STUCK = 20  # ticks of the watching thread, each of them on time, in which the event loop did not tick once


class StallWatch:
    """``async with`` it around calls; then ``place`` says where the event loop was held up, or is empty."""

    def __init__(self) -> None:
        self.place = ""
        self._beats = 0
        self._over = threading.Event()
        self._loop_thread = 0

    async def __aenter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._heart = asyncio.create_task(self._beat())
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._heart.cancel()
        self._thread.join(timeout=5)

    async def _beat(self) -> None:
        while True:
            self._beats += 1
            await asyncio.sleep(_TICK / 2)

    def _watch(self) -> None:
        seen, stuck = -1, 0
        at = time.monotonic()
        while not self._over.wait(_TICK) and not self.place:
            before, at = at, time.monotonic()
            if self._beats != seen:
                seen, stuck = self._beats, 0
            elif at - before < 2 * _TICK:  # we got our turn in time, so the loop's thread could have had one too
                stuck += 1
            if stuck >= _STUCK:
                self.place = self._where()

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to see another thread's stack
        if frame is None:
            return "an unknown place"
        stack = traceback.extract_stack(frame)
        own = [place for place in stack if not _is_library(place.filename)]
        last = own[-1] if own else stack[-1]
        return f"{last.filename}:{last.lineno} in {last.name}"


def _is_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(sysconfig.get_paths()["stdlib"])
