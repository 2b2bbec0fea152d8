"""Drivers of the simulated cloud that each make one mistake; `tests.torture.rig` installs them by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from cloudgraft.simcloud.driver import SimulatedDriver

NAMES = {
    "says-nothing-was-done": "SaysNothingWasDone",
    "deletes-nothing": "DeletesNothing",
    "drops-tags": "DropsTags",
    "deletes-others": "DeletesOthers",
    "forgets-the-last": "ForgetsTheLast",
}


class SaysNothingWasDone(SimulatedDriver):
    """Takes a lost answer for a refusal."""

    async def create(self, spec: MachineSpec) -> Machine:
        try:
            return await super().create(spec)
        except DeadlineError as error:
            raise UnavailableError(error.message) from error


class DeletesNothing(SimulatedDriver):
    async def delete(self, machine: Machine) -> None:
        """Answers, and does nothing."""


class DropsTags(SimulatedDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        return await super().create(replace(spec, tags={"owner": "somebody"}))


class DeletesOthers(SimulatedDriver):
    async def delete(self, machine: Machine) -> None:
        await super().delete(machine)
        for other in await super().list():
            if other.name == "db-1":
                await super().delete(other)


class ForgetsTheLast(SimulatedDriver):
    async def list(self) -> Sequence[Machine]:
        """Stops before the last machine, as one does who counts pages wrongly."""
        machines = await super().list()
        return machines[:-1] if len(machines) > 3 else machines
