"""What goes wrong in a run: replicas and a database that stop, die or do not hear of each other, clocks, failovers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.conditions import until
from tests.replicas.clients import Notes
from tests.replicas.cluster import GROUPS, Cluster, Replica

_CALLS = 40  # of a replica that was overtaken: among them are reads of every kind
_LONG = 120.0  # seconds; more is a fault


class Disturbances:
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

    async def isolate_replica(self) -> None:
        """It and the database hear nothing of each other; then all that was sent meanwhile arrives."""
        replica = await self._cluster.victim(self._dice)
        replica.wire.hold()
        await asyncio.sleep(self._dice.uniform(0.3, 3.0) * self._cluster.lease)
        replica.wire.let_go()

    async def stop_leader(self) -> None:
        """SIGSTOP until another leads and has changed every group; and SIGCONT, with calls to both."""
        replica = await self._leader()
        replica.stop()
        await self._is_overtaken(replica)
        replica.resume()
        await self._is_called(replica)

    async def isolate_leader(self) -> None:
        """The same without a stop: the database cannot tell it that another leads, so its own clock has to."""
        replica = await self._leader()
        replica.wire.hold()
        await self._is_overtaken(replica)
        await self._is_called(replica)
        replica.wire.let_go()

    async def wake_isolated_leader(self) -> None:
        """Both: the first thing that it sees when it wakes up are calls, and nothing from the database."""
        replica = await self._leader()
        replica.stop()
        await self._is_overtaken(replica)
        replica.wire.hold()
        replica.resume()
        await self._is_called(replica)
        replica.wire.let_go()

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

    async def _leader(self) -> Replica:
        await until(self._cluster.has_leader, what="a replica leads", seconds=_LONG)
        return await self._cluster.leader() or await self._leader()

    async def _is_overtaken(self, replica: Replica) -> None:
        """Until another leads, and what the first one knows of any group is out of date."""
        changed = self._notes.changed
        before = Counter(changed)

        async def is_changed() -> bool:
            other = await self._cluster.leader(but=replica)
            return other is not None and all(changed[other.name, group] > before[other.name, group] for group in GROUPS)

        await until(is_changed, what=f"another than {replica.name} leads and changes every group", seconds=_LONG)

    async def _is_called(self, replica: Replica) -> None:
        enough = self._notes.ended[replica.name] + _CALLS
        self._notes.suspect = replica
        await until(lambda: self._notes.ended[replica.name] >= enough, what="clients call it", seconds=_LONG)
        self._notes.suspect = None

    def _jump(self) -> float:
        return self._dice.choice((-1, 1)) * self._dice.choice((0.0, 5.0, 600.0, 7200.0))


FAULTS: dict[str, Callable[[Disturbances], Awaitable[None]]] = {
    "stop": Disturbances.stop_replica,
    "stop-leader": Disturbances.stop_leader,
    "isolate": Disturbances.isolate_replica,
    "isolate-leader": Disturbances.isolate_leader,
    "wake-isolated-leader": Disturbances.wake_isolated_leader,
    "kill": Disturbances.kill_replica,
    "database-kill": Disturbances.kill_database,
    "database-freeze": Disturbances.freeze_database,
    "database-clock": Disturbances.set_database_clock,
    "replica-clock": Disturbances.set_replica_clock,
    "failover": Disturbances.fail_over,
}
