"""A driver that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from cloudgraft.sdk import (
    Driver,
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    Ownership,
)

SPEC = MachineSpec(name="m-1", group="g", settings={"shape": "small"}, tags={"owner": "us"}, user_data="#!/bin/sh")


TRAITS = DriverTraits(
    ownership=Ownership.NAME, idempotency=Idempotency.TOKEN, list_delay=timedelta(seconds=3), complete_list=False
)


class Scripted(Driver):
    """Does what the test says."""

    traits = TRAITS

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.machines: Sequence[Machine] = ()
        self.seen: list[object] = []
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def create(self, spec: MachineSpec) -> Machine:
        await self._step(spec)
        return Machine(name=spec.name, machine_id="1", tags=spec.tags)

    async def delete(self, machine: Machine) -> None:
        await self._step(machine)

    async def list(self) -> Sequence[Machine]:
        await self._step(None)
        return self.machines

    async def _step(self, seen: object) -> None:
        self.entered.set()
        await self.go_on.wait()
        self.seen.append(seen)
        if self.error is not None:
            raise self.error
