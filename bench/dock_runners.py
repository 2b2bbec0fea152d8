"""Drivers with our own runner in a process of their own: ``python -m bench.dock_runners ADDRESS DRIVERS IN_FLIGHT``.

Each is what ``cloudgraft.dock.run`` makes of a driver, context one that answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from bench.dock_child import obey, settle
from bench.dock_client import Count
from bench.dock_words import TAGS, key_of
from cloudgraft.dock.runner.options import RunnerOptions, RunnerSettings
from cloudgraft.dock.runner.runner import DockRunner
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec

__all__: list[str] = []

_AT_A_TIME = 20  # connections that are made at once


class InstantDriver(Driver):
    """Makes machines of words."""

    def __init__(self, number: int, count: Count) -> None:
        self._number = number
        self._count = count

    async def create(self, spec: MachineSpec) -> Machine:
        """At once. The number of the operation is in the name."""
        self._count.see(self._number, int(spec.name.rpartition("-")[2]))
        return Machine(name=spec.name, machine_id=f"i-{spec.name}", provider_id=f"bench:///{spec.name}", tags=TAGS)

    async def delete(self, machine: Machine) -> None:
        """Nobody asks."""

    async def list(self) -> Sequence[Machine]:
        """Nobody asks."""
        return ()


async def main(address: str, drivers: int, in_flight: int) -> None:
    """Connects, and tells what it was asked whenever it is told to."""
    count = Count()
    runners = [_runner(address, number, in_flight, count) for number in range(drivers)]
    for first in range(0, drivers, _AT_A_TIME):
        some = runners[first : first + _AT_A_TIME]
        await asyncio.gather(*(runner.start() for runner in some))
        await asyncio.gather(*(runner.wait_connected() for runner in some))

    async def command(_told: dict[str, Any]) -> dict[str, Any]:
        return count.take()

    settle()
    await obey({"connected": drivers}, command)
    await asyncio.gather(*(runner.stop(0) for runner in runners))


def _runner(address: str, number: int, in_flight: int, count: Count) -> DockRunner:
    key = key_of(number)
    settings = RunnerSettings(max_in_flight=in_flight)
    options = RunnerOptions(address=address, kind=key.kind, api_version=key.api_version, settings=settings)
    return DockRunner(InstantDriver(number, count), options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("drivers", type=int)
    parser.add_argument("in_flight", type=int)
    arguments = parser.parse_args()
    logging.getLogger("cloudgraft").setLevel(logging.ERROR)
    asyncio.run(main(arguments.address, arguments.drivers, arguments.in_flight))
