"""One run, from beginning to end: in a directory of its own, with time and chance under control."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.needs import shared_memory
from tests.simulation.determinism import controlled
from tests.simulation.invariants import Violation
from tests.simulation.loop import StandstillError, VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.postgres import shared
from tests.simulation.setting import Setting
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    digest: str
    steps: int
    lines: int
    violation: Violation | None
    latest: Sequence[str] = ()


def run(
    setting: Setting,
    plan: Plan,
    hours: float,
    *,
    replicas: int = 1,
    ignored: frozenset[str] = frozenset(),
    echo: Callable[[str], None] | None = None,
) -> Result:
    """One run, from beginning to end."""
    loop = VirtualLoop()
    with (
        _quiet(),
        tempfile.TemporaryDirectory(dir=shared_memory()) as directory,
        controlled(loop, setting.seed),
        shared() if replicas > 1 else contextlib.nullcontext(),
    ):
        world = World(setting, plan, hours, Path(directory), loop, replicas=replicas, ignored=ignored, echo=echo)
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(loop.spawn(world.run(), "world"))
        except StandstillError as error:
            world.fail(Violation("error", str(error)))
        finally:
            world.discard()
            asyncio.set_event_loop(None)
            loop.close()
        loop.abandon()
        result = Result(world.trace.digest, loop.steps, world.trace.count, world.failure, list(world.trace.latest))
        del world, loop
        gc.collect()
    return result


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Processes that were killed leave tasks behind; what those say when they are collected is of no interest."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook
