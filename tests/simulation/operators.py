"""What people do: they configure, pause, adopt, and delete by hand what the engine leaves to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cloudgraft.engine.operations.adoption import adopt
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change, Contents, MachineRecord, State
from tests.simulation.cloud import SimCloud, SimMachine
from tests.simulation.loop import Host

if TYPE_CHECKING:
    from tests.simulation.world import World


class Operators:
    """Those who look after the servers of a run."""

    def __init__(self, world: World) -> None:
        self.observed: dict[str, float] = {}  # cloud -> until when it is only to be observed
        self.pauses: dict[str, float] = {}  # group -> until when it is to be paused
        self._world = world
        self._adopting: dict[tuple[str, str], SimMachine] = {}  # by cloud and machine id: an operator has asked for it
        # By cloud and machine id: an operator was told that it may have been adopted, or not, and by which process.
        self._doubtful: dict[tuple[str, str], tuple[SimMachine, Host]] = {}

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
        engine, host = server.engine, server.host

        async def work() -> None:
            try:
                await adopt(engine, group, [machine.machine_id], is_dry_run=False)
            except JournalUnavailableError as error:
                if error.is_ambiguous:
                    self._doubtful[cloud.name, machine.machine_id] = machine, host
                raise

        if machine.is_alive:
            self._adopting[cloud.name, machine.machine_id] = machine
            host.spawn(work(), "adopt").add_done_callback(_ignored)

    def on_commit(self, change: Change) -> None:
        """A machine is ours once the journal says so, also when its server dies before the operator hears of it."""
        if all(event.kind != "adopted" for event in change.events):
            return
        for record in change.machines:
            machine = self._adopting.pop((record.cloud, record.machine_id), None)
            if machine is not None:
                self._is_ours(machine, record)

    def on_loaded(self, host: Host | None, contents: Contents) -> None:
        """After a write of unknown outcome the operator, who was told so, looks at the status of the next process.

        The same process takes back what it has denied.
        """
        for record in contents.machines:
            machine, told_by = self._doubtful.get((record.cloud, record.machine_id), (None, None))
            if machine is not None and told_by is not host and record.state in (State.BOOTING, State.RUNNING):
                del self._doubtful[record.cloud, record.machine_id]
                self._is_ours(machine, record)

    def _is_ours(self, machine: SimMachine, record: MachineRecord) -> None:
        machine.owner, machine.group, machine.is_adopted = "ours", record.group, True
        machine.marks_lost_at = self._world.loop.time()
        machine.intent = record.name  # perhaps that of an earlier machine of the same id: it goes on under that name
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
