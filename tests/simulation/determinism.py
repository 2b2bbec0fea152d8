"""Puts time, chance and threads under the simulation's control, for the span of one run.

What the code asks of the standard library is answered here: clocks by the simulated process that asks, chance by the
seed, and a database's thread by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

from cloudgraft.sdk.errors import UnavailableError
from tests.simulation.loop import CURRENT, VirtualLoop

T = TypeVar("T")
EPOCH = 1_800_000_000.0


def insist_on_hash_seed() -> None:
    """Starts this program again where the order of sets would differ from run to run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class InlinePool:
    """Stands in for a database's thread: one call after another, each some virtual milliseconds long."""

    latency: Callable[[], float] = staticmethod(lambda: 0.002)
    stalled_until = 0.0  # nothing is answered before

    def __init__(self, label: str, *, threads: int = 1, waiting: int = 256) -> None:
        self._label = label
        self._waiting = waiting
        self._count = 0
        self._free_at = 0.0
        self._is_closed = False

    async def run(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """As :meth:`cloudgraft.sdk.common.event_loop.BlockingPool.run`."""
        if self._is_closed or self._count >= self._waiting:
            raise UnavailableError(f"{self._label} is closed or busy")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        begins = max(loop.time(), self._free_at, InlinePool.stalled_until)
        ends = self._free_at = begins + InlinePool.latency()
        self._count += 1
        bound = functools.partial(call, *args, **kwargs)
        loop.call_at((begins + ends) / 2, self._perform, bound, future, ends)
        return await future

    def close(self) -> None:
        """Later calls are refused."""
        self._is_closed = True

    def _perform(self, call: Callable[[], T], future: asyncio.Future[T], ends: float) -> None:
        self._count -= 1
        if future.cancelled():
            return
        loop = asyncio.get_running_loop()
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            loop.call_at(ends, _fail, future, error)
        else:
            loop.call_at(ends, _answer, future, result)


def _answer(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


@contextlib.contextmanager
def controlled(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Everything that is asked for the time, or for chance, is answered by the simulation."""
    dice = random.Random(f"secrets {seed}")
    state = random.getstate()
    random.seed(f"jitter {seed}")

    def wall() -> float:
        host = CURRENT.get()
        return host.wall() if host else EPOCH + loop.time()

    def ran(_clock: int = 0) -> float:
        host = CURRENT.get()
        return host.ran() if host else loop.time()

    replaced = {
        "time.time": wall,
        "time.monotonic": ran,
        "time.perf_counter": ran,
        "time.clock_gettime": ran,
        "secrets.token_bytes": lambda count=32: dice.randbytes(count),
        "secrets.token_hex": lambda count=32: dice.randbytes(count).hex(),
        "secrets.choice": dice.choice,
        "cloudgraft.store.databases.database.BlockingPool": InlinePool,
        # Only for speed: these wake up once a second and once a minute, all day, to find nothing to do.
        "cloudgraft.engine.maintenance._PROBE": 10.0,
        "cloudgraft.engine.maintenance._CLEAN_EVERY": 1800.0,
    }
    with contextlib.ExitStack() as stack:
        for name, function in replaced.items():
            stack.enter_context(mock.patch(name, function))
        try:
            yield
        finally:
            random.setstate(state)
