"""The process under test of the crash sweep, with `exec` as the driver: its calls are processes of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions, Timeouts
from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.sdk.driver import Driver
from tests.crash import child
from tests.crash.process import _FORKS, _ONE_AT_A_TIME, Process
from tests.crash.setting import Order, desired_state
from tests.crash.trapped import TrappedDriver

_SCRIPT = Path(__file__).with_name("sim_script.py")


class ExecProcess(Process):
    """One life of it."""

    def __init__(self, order: Order) -> None:
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=main, args=(theirs, order), daemon=True)
        with _ONE_AT_A_TIME:
            self._process.start()
        theirs.close()


def main(pipe: Connection, order: Order) -> None:
    """As :func:`tests.crash.child.main`."""
    child.desired_state = _patient  # type: ignore[attr-defined]  # what it has imported, in this process only
    asyncio.run(_ExecChild(pipe, order).serve())


class _ExecChild(child._Child):
    def _driver(self) -> Driver:
        variant = self._order.variant
        port = urlsplit(self._order.url).port
        command = [sys.executable, "-I", "-S", str(_SCRIPT), str(port)]
        options = ExecOptions(
            create=command,
            delete=command,
            list=command,
            shapes=command,
            idempotency=variant.idempotency,
            list_delay=timedelta(seconds=variant.list_lag),
            timeouts=Timeouts(create=timedelta(seconds=variant.create_timeout)),
        )
        return TrappedDriver(ExecDriver(options), self._trap)


def _patient(order: Order, make: Callable[[], Driver]) -> DesiredState:
    """A process for each call takes its time."""
    plain = desired_state(order, make)
    cloud = plain.clouds["sim"]
    seconds = timedelta(seconds=1)
    settings = replace(
        cloud.settings, observe_every=seconds / 4, list_timeout=20 * seconds, delete_timeout=10 * seconds
    )
    return replace(plain, clouds={"sim": replace(cloud, settings=settings)})
