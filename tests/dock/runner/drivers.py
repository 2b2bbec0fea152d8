"""Drivers for the runner's tests, and a runner that is quick to reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, Ownership

KIND, API_VERSION = "LabMachineClass", "machine.example/v1"


class GatedDriver(Driver):
    """Machines in memory. A create of a name in ``gates`` waits until its gate is opened."""

    traits = DriverTraits(ownership=Ownership.TAGS, idempotency=Idempotency.NONE)

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.specs: list[MachineSpec] = []
        self.list_gate: asyncio.Event | None = None
        self.fails: BaseException | None = None
        self.closed = 0

    async def create(self, spec: MachineSpec) -> Machine:
        self.begun.append(spec.name)
        self.specs.append(spec)
        if self.fails is not None:
            raise self.fails
        if spec.name in self.gates:
            await self.gates[spec.name].wait()
        number = len(self.machines) + 1  # never the same id twice: a double would show
        machine = Machine(name=spec.name, machine_id=f"id-{number}", provider_id=f"lab://{number}", tags=spec.tags)
        self.machines.append(machine)
        return machine

    async def delete(self, machine: Machine) -> None:
        self.begun.append(f"delete {machine.machine_id}")
        self.machines = [one for one in self.machines if one.machine_id != machine.machine_id]

    async def list(self) -> Sequence[Machine]:
        if self.list_gate is not None:
            await self.list_gate.wait()
        return list(self.machines)

    async def close(self) -> None:
        self.closed += 1

    def hold(self, name: str) -> asyncio.Event:
        self.gates[name] = asyncio.Event()
        return self.gates[name]


def options_for(address: str, **settings: Any) -> RunnerOptions:
    quick = {"first_wait": 0.02, "longest_wait": 0.1, "grace": 5.0, **settings}
    return RunnerOptions(address=address, kind=KIND, api_version=API_VERSION, settings=RunnerSettings(**quick))


@asynccontextmanager
async def running(driver: Driver | BlockingDriver, address: str, **settings: Any) -> AsyncIterator[DockRunner]:
    runner = DockRunner(driver, options_for(address, **settings))
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop(grace=0.0)
