"""What people do: they configure, pause, adopt, and delete by hand what the engine leaves to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cloudgraft.engine.adoption import adopt
from cloudgraft.store.records import Change
from tests.simulation.cloud import SimCloud, SimMachine

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Operators"]


class Operators:
    """Those who look after the servers of a run."""

    def __init__(self, world: World) -> None:
        self.observed: dict[str, float] = {}  # cloud -> until when it is only to be observed
        self.pauses: dict[str, float] = {}  # group -> until when it is to be paused
        self._world = world
        self._adopting: dict[tuple[str, str], SimMachine] = {}  # by cloud and machine id: an operator has asked for it

    def observe(self, clouds: Iterable[str], until: float) -> None:
        """The configuration says that nothing is changed in some clouds, and after a while that it may be again."""
        for cloud in clouds:
            self.observed[cloud] = max(until, self.observed.get(cloud, 0.0))
            self._world.trouble(cloud, until + 120)
        self._world.loop.later(until - self._world.loop.time(), self._end_observing)
        self._world.reconfigure(self._world.groups)

    def _end_observing(self) -> None:
        now = self._world.loop.time()
        self.observed = {cloud: until for cloud, until in self.observed.items() if until > now + 1}
        self._world.reconfigure(self._world.groups)

    def operate(self, plan: Callable[[], Change]) -> None:
        """An operator changes something in a server that runs, as soon as one does."""
        server = self._world.server
        if server.is_serving and server.engine is not None and server.host is not None:
            engine = server.engine

            async def change() -> None:
                await engine.writer.write(plan)

            server.host.spawn(change(), "operator").add_done_callback(lambda task: self._operated(task, plan))
        else:
            self._world.loop.later(60, self.operate, plan)

    def _operated(self, task: asyncio.Task[None], plan: Callable[[], Change]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._world.loop.later(60, self.operate, plan)

    def adopt(self, cloud: SimCloud, machine: SimMachine, group: str) -> None:
        """An operator says that a machine is ours, as soon as a server runs that can be told."""
        server = self._world.server
        if not server.is_serving or server.engine is None or server.host is None:
            self._world.loop.later(60, self.adopt, cloud, machine, group)
            return
        engine = server.engine

        async def work() -> None:
            await adopt(engine, group, [machine.machine_id], is_dry_run=False)

        if machine.is_alive:
            self._adopting[cloud.name, machine.machine_id] = machine
            server.host.spawn(work(), "adopt").add_done_callback(_ignored)

    def on_commit(self, change: Change) -> None:
        """A machine is ours once the journal says so, also when its server dies before the operator hears of it."""
        if all(event.kind != "adopted" for event in change.events):
            return
        for record in change.machines:
            machine = self._adopting.pop((record.cloud, record.machine_id), None)
            if machine is None:
                continue
            machine.owner, machine.group, machine.is_adopted = "ours", record.group, True
            machine.marks_lost_at = self._world.loop.time()
            machine.intent = (
                record.name
            )  # perhaps that of an earlier machine of the same id: it goes on under that name
            self._world.on_machine(self._world.clouds[record.cloud], machine)

    def settle_double(self, intent: str) -> None:
        """A person reads that it is not clear which of two machines is in use, and deletes the one that is not."""
        for cloud in self._world.clouds.values():
            twins = [m for m in cloud.machines.values() if m.intent == intent and m.owner in ("ours", "clone")]
            idle = [m for m in twins if not self._world.kubernetes.nodes_of(m)]
            for machine in idle if len(idle) < len(twins) else idle[1:]:
                self._world.trace("operator", f"deletes {machine.machine_id}, which is not in use")
                cloud.remove(machine)


def _ignored(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
