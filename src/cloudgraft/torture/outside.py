"""Uses a second driver, outside the server, to list the cloud and to delete what a run has made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.driver.under_test import Calls, known, shut
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineState
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError
from cloudgraft.torture.judge import MARGIN, Listing, is_ours

_STEP = 0.5  # seconds between two lists while machines are deleted
_TRIES = 3  # of a list that fails


class OutsideDriver:
    """The cloud as an operator would look at it."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def traits(self) -> DriverTraits:
        """What the driver declares. That of a plugin is known once it has started."""
        return self._calls.driver.traits

    async def listed(self) -> Listing:
        """Lists the cloud. A list that fails is tried again; raises UnavailableError when none succeeds."""
        trouble = ""
        for number in range(_TRIES):
            await asyncio.sleep(number * _STEP)
            began = time.monotonic()
            try:
                return Listing(began=began, machines=await self._calls.list())
            except (CloudgraftError, Violation) as error:
                trouble = str(error)
        raise UnavailableError(f"the cloud cannot be listed: {trouble}")

    async def prices(self) -> dict[str, str]:
        """The price of an hour of each shape, with its currency; empty when the driver knows none."""
        try:
            return {price.shape: f"{price.hourly} {price.currency}" for price in await self._calls.prices()}
        except (CloudgraftError, Violation):
            return {}

    async def delete_all(
        self, identity: Identity, *, since: float, patience: float, on_step: Callable[[int], None] = lambda _: None
    ) -> Sequence[str]:
        """Deletes every machine of this run, and returns those that are left.

        ``since`` is when the last create may have been carried out: a list must be later than that to be believed.
        """
        certain = since + self.traits.list_delay.total_seconds() + MARGIN
        give_up_at = max(certain, time.monotonic()) + patience
        while True:
            listing = await self.listed()
            ours = [machine for machine in listing.machines if is_ours(machine, identity)]
            on_step(len(ours))
            alive = [machine for machine in ours if machine.state is not MachineState.DELETING]
            if not ours and listing.began >= certain:
                return ()
            if time.monotonic() >= give_up_at:
                return sorted(f"{machine.name} ({machine.machine_id})" for machine in ours)
            await asyncio.gather(*(self._delete(machine) for machine in alive))
            await asyncio.sleep(_STEP)

    async def _delete(self, machine: Machine) -> None:
        try:
            await self._calls.delete(known(machine))
        except (NotFoundError, CloudgraftError, Violation):
            return  # the next list shows whether it is gone


@asynccontextmanager
async def started(make: Callable[[], Driver], seconds: float) -> AsyncIterator[OutsideDriver]:
    """A started driver; ``seconds`` is the time limit of each call."""
    calls = Calls(make(), seconds, _Forgetful())
    try:
        try:
            await calls.start()
        except Violation as error:
            raise UnavailableError(str(error)) from error
        yield OutsideDriver(calls)
    finally:
        await shut(calls)


class _Forgetful(list):  # type: ignore[type-arg]
    """Keeps nothing: a run makes thousands of calls."""

    def append(self, _exchange: object) -> None:
        """Drops it."""
