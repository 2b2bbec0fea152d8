"""The drivers of one run, and everything that the run made: opened when needed, closed and swept in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from cloudgraft.conformance.driver.calls import Calls
from cloudgraft.conformance.driver.marks import Marks
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.driver import Machine, MachineState

__all__ = ["House", "certain_after", "shut"]

log = logging.getLogger("cloudgraft.conformance")

_MARGIN = 0.05  # seconds: a cloud's clock is not ours
_CLOSE = 5.0  # seconds
_STEP = 0.1  # seconds between two looks


class House:
    """Where the drivers of one run live. What the run makes is written down here before it is made."""

    def __init__(self, make_driver: Callable[[], AnyDriver], settings: DriverSettings, marks: Marks) -> None:
        """``make_driver`` is called anew after a check that may have harmed the driver."""
        self.settings = settings
        self.marks = marks
        self.name = ""  # of the driver's class
        self.raw: AnyDriver | None = None  # the author's own object
        self.last_create = 0.0  # when the last one ended, or was given up
        self.last_delete = 0.0
        self.open_creates = 0  # calls of which nobody knows what came of them
        self.made: dict[str, Machine] = {}  # by machine id: answers of create that nobody has deleted yet
        self._make_driver = make_driver
        self._calls: Calls | None = None

    async def driver(self, exchanges: list[Exchange]) -> Calls:
        """The driver of the run, started; its calls are noted in this list from now on."""
        if self._calls is None:
            self._calls = await self.fresh(exchanges)
        self._calls = self.wrapped(self._calls, exchanges)
        return self._calls

    async def fresh(self, exchanges: list[Exchange]) -> Calls:
        """One more driver, started. Whoever asks for it closes it."""
        calls = self.unstarted(exchanges)
        try:
            await calls.start()
        except BaseException:
            await shut(calls)
            raise
        return calls

    def unstarted(self, exchanges: list[Exchange], made: AnyDriver | None = None) -> Calls:
        """One more driver, or this one, as it is."""
        raw = self._make_driver() if made is None else made
        if made is None:
            self.raw, self.name = raw, type(raw).__name__
        return Calls(as_driver(raw), self.settings.call_timeout.total_seconds(), exchanges)

    def wrapped(self, calls: Calls, exchanges: list[Exchange]) -> Calls:
        """The same driver with another list of notes."""
        return Calls(calls.driver, self.settings.call_timeout.total_seconds(), exchanges)

    async def retire(self) -> None:
        """Closes the run's driver: the next check gets a new one."""
        if self._calls is not None:
            calls, self._calls = self._calls, None
            await shut(calls)

    # -- cleaning up ---------------------------------------------------------------------------------------------------

    async def tidy(self) -> None:
        """Deletes what a check made, without waiting for it to be gone."""
        if self._calls is not None and self.made:
            await self._delete(self.wrapped(self._calls, []), list(self.made.values()))

    async def sweep(self) -> Sequence[str]:
        """Deletes everything that the run made, and says what is left. Closes the driver."""
        left: Sequence[str] = ()
        if self.last_create:
            left = await self._swept()
        await self.retire()
        return left

    async def _swept(self) -> Sequence[str]:
        patience = self.settings.patience.total_seconds()
        alive: Sequence[Machine] = list(self.made.values())
        try:
            calls = await self.driver([])
            late = self.settings.late.total_seconds() if self.open_creates and self.settings.is_lasting else 0.0
            settled = certain_after(self.last_create, calls) + late
            async with asyncio.timeout(max(0.0, settled - time.monotonic()) + patience):
                await self._delete(calls, alive)
                while True:
                    began = time.monotonic()
                    alive = await self._alive(calls)
                    if not alive and began >= settled:
                        return ()
                    await self._delete(calls, alive)
                    await asyncio.sleep(_STEP)
        except Exception as error:  # noqa: BLE001 - whatever it is: these are left, and that is told
            log.warning("could not clean up: %s: %s", type(error).__name__, error)
            return sorted(f"{machine.name} ({machine.machine_id})" for machine in alive)

    async def _alive(self, calls: Calls) -> list[Machine]:
        listed = [machine for machine in await calls.list() if self.marks.is_ours(machine)]
        alive = [machine for machine in listed if machine.state is not MachineState.DELETING]
        # Where a list need not show everything, what create() answered counts too.
        return alive if calls.driver.traits.complete_list else [*alive, *self.made.values()]

    async def _delete(self, calls: Calls, machines: Sequence[Machine]) -> None:
        done = await asyncio.gather(*(calls.delete(machine) for machine in machines), return_exceptions=True)
        self.last_delete = time.monotonic()
        for machine, outcome in zip(machines, done, strict=True):
            if not isinstance(outcome, BaseException):
                self.made.pop(machine.machine_id, None)


def certain_after(moment: float, calls: Calls) -> float:
    """From when on a list must show what had ended at that moment."""
    delay = calls.driver.traits.list_delay.total_seconds()
    return moment + delay + _MARGIN if delay else moment


async def shut(calls: Calls) -> None:
    """Closes a driver, whatever it says to that."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE):
            await calls.driver.close()
