"""v0 knows a machine by one id, its providerID. A driver of the sdk has two: this finds the other one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.wire.driver import expect_all

__all__ = ["ByProviderId", "id_of"]

_REMEMBERED: Final = 10_000  # machines


def id_of(machine: Machine) -> str:
    """The one id of v0."""
    return machine.provider_id or machine.machine_id


class ByProviderId(Driver):
    """A driver whose delete takes a machine by its providerID."""

    def __init__(self, inner: Driver) -> None:
        self._inner = inner
        self._known: OrderedDict[str, Machine] = OrderedDict()
        self.traits = inner.traits

    async def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""
        machine = await self._inner.create(spec)
        self._remember(machine)
        return machine

    async def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""
        answer = await self._inner.list()
        expect_all(answer)
        machines = [*answer]  # it may be something that can be read only once
        for machine in machines:
            self._remember(machine)
        return machines

    async def delete(self, machine: Machine) -> None:
        """By ``machine.machine_id``, which here is the providerID. One that a list does not show is gone, if it may."""
        wanted = machine.machine_id
        if wanted not in self._known:
            await self.list()
        found = self._known.get(wanted)
        if found is not None:
            await self._inner.delete(found)
            self._known.pop(wanted, None)
        elif not self.traits.complete_list or self.traits.list_delay:
            raise PreconditionError(
                f"{wanted!r} is not in the cloud's list, and in this cloud that does not prove that it is gone"
            )

    async def start(self) -> None:
        """See :meth:`Driver.start`."""
        await self._inner.start()
        self.traits = self._inner.traits  # it may know more of its cloud now

    async def close(self) -> None:
        """See :meth:`Driver.close`."""
        await self._inner.close()

    def _remember(self, machine: Machine) -> None:
        self._known[id_of(machine)] = machine
        self._known[machine.machine_id] = machine
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
