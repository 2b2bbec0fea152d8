"""What goes wrong in a run: replicas that stop or die, a database that does, clocks that jump, and a failover."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.replicas.clients import Notes
from tests.replicas.cluster import Cluster

__all__ = ["FAULTS", "Nemesis"]


class Nemesis:
    """Injects faults, chosen by a seed, one after another."""

    def __init__(self, cluster: Cluster, notes: Notes, dice: random.Random) -> None:
        self.injected: Counter[str] = Counter()
        self._cluster = cluster
        self._notes = notes
        self._dice = dice

    async def inject(self, fault: str) -> None:
        """One fault, from its beginning to its end."""
        self.injected[fault] += 1
        await FAULTS[fault](self)

    async def stop_replica(self) -> None:
        """SIGSTOP, mostly for longer than the lease, and SIGCONT."""
        replica = await self._cluster.victim(self._dice)
        replica.stop()
        await asyncio.sleep(self._dice.uniform(0.3, 3.0) * self._cluster.lease)
        replica.resume()

    async def kill_replica(self) -> None:
        """kill -9, and another start."""
        replica = await self._cluster.victim(self._dice)
        replica.kill()
        await asyncio.sleep(self._dice.uniform(0.0, self._cluster.lease))
        await replica.start()

    async def kill_database(self) -> None:
        """An end without a shutdown, and another start, which recovers from the log."""
        await asyncio.to_thread(self._cluster.primary.stop)
        await asyncio.sleep(self._dice.uniform(0.0, 1.5) * self._cluster.lease)
        await asyncio.to_thread(self._cluster.primary.start)

    async def freeze_database(self) -> None:
        """SIGSTOP to all of its processes."""
        with self._cluster.primary.frozen():
            await asyncio.sleep(self._dice.uniform(0.1, 1.2) * self._cluster.lease)

    async def set_database_clock(self) -> None:
        """A jump, back or forth, of seconds or of minutes."""
        seconds = self._jump()
        await asyncio.to_thread(self._cluster.set_database_clock, seconds)

    async def set_replica_clock(self) -> None:
        """The same on one replica's host."""
        self._dice.choice(self._cluster.replicas).offset.value = self._jump()

    async def fail_over(self) -> None:
        """To a standby without the commits of the last second or two."""
        self._notes.history.failovers.append(await self._cluster.fail_over(self._dice.uniform(0.3, 2.0)))

    def _jump(self) -> float:
        return self._dice.choice((-1, 1)) * self._dice.choice((0.0, 5.0, 600.0, 7200.0))


FAULTS: dict[str, Callable[[Nemesis], Awaitable[None]]] = {
    "stop": Nemesis.stop_replica,
    "kill": Nemesis.kill_replica,
    "database-kill": Nemesis.kill_database,
    "database-freeze": Nemesis.freeze_database,
    "database-clock": Nemesis.set_database_clock,
    "replica-clock": Nemesis.set_replica_clock,
    "failover": Nemesis.fail_over,
}
