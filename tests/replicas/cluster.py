"""Several replicas on one PostgreSQL with a standby, each a process, and what can be done to them."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from tests.conditions import until
from tests.postgres import PostgresServer, shift_database_clock
from tests.replicas import child
from tests.replicas.history import Failover
from tests.replicas.wire import Wire
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server
from tests.serve.settings import configuration, postgresql, simulated, small

GROUPS = ("one", "two")
_DATABASE = "replicas"
_SETTLE = 120.0  # seconds; longer is a fault


@dataclass(slots=True)
class Replica:
    """One replica, through all its lives."""

    name: str
    file: Path
    text: str
    fault: str
    wire: Wire  # to the database
    offset: Synchronized[float] = field(
        default_factory=lambda: multiprocessing.get_context("forkserver").Value("d", 0.0)
    )
    server: Server | None = None
    address: str = ""
    lives: list[Server] = field(default_factory=list)
    is_stopped: bool = False

    async def start(self) -> None:
        server = Server(self.file, self.text, target=child.run, extra=(self.offset, self.fault))
        self.server = server
        self.lives.append(server)
        self.address = await asyncio.to_thread(lambda: server.address)

    def kill(self) -> None:
        server, self.server, self.address = self.server, None, ""
        if server is not None:
            server.kill()

    def close(self) -> None:
        """Leaves no process behind, whatever has become of it."""
        for server in self.lives:
            server.close()

    def stop(self) -> None:
        if self.server is not None:
            self.server.send(signal.SIGSTOP)
            self.is_stopped = True

    def resume(self) -> None:
        if self.server is not None and self.is_stopped:
            self.server.send(signal.SIGCONT)
        self.is_stopped = False

    def elections(self) -> int:
        """How often it was elected, in all its lives."""
        lines = (line for server in self.lives for line in server.said("elected leader"))
        return sum(line["event"] == "elected leader" for line in lines)

    def wrongs(self) -> list[str]:
        """What it should never have logged."""
        words = ("never retrieved", "Traceback", "not json")
        found = [line for server in self.lives for word in words for line in server.said(word)]
        # The database may go away during a take-over, and the log has how.
        wrong = [str(line) for line in found if line.get("event") != "cannot take over"]
        if self.server is not None and self.server.exit_code is not None:
            wrong.append(f"replica {self.name} ended by itself with {self.server.exit_code}")
        return wrong

    def endings(self) -> Counter[str]:
        """Why it stopped leading, and how often."""
        lines = (line for server in self.lives for line in server.said("no longer the leader: "))
        return Counter(str(line["event"]).partition(": ")[2][:60] for line in lines)


class Cluster:
    """All of it. The address of the database is a symbolic link, which follows the primary."""

    def __init__(self, directory: Path, cloud: Cloud, primary: PostgresServer, lease: float, fault: str) -> None:
        self.cloud = cloud
        self.primary = primary
        self.lease = lease
        self.is_failing_over = False
        self._stack = contextlib.AsyncExitStack()
        self._front = directory / "db"
        self._front.symlink_to(primary.directory)
        primary.execute(f"CREATE DATABASE {_DATABASE}")
        shift_database_clock(primary.url(_DATABASE), 0)
        self.standby = self._new_standby()
        self.replicas = [self._new_replica(directory, name, fault) for name in "abc"]

    def _new_replica(self, directory: Path, name: str, fault: str) -> Replica:
        wire = Wire(directory / f"{name}-db", self._front)
        text = configuration(
            {"sim": simulated(self.cloud.url)},
            [small(group, maxSize=12) for group in GROUPS],
            store={
                **postgresql(self.primary.url(_DATABASE), f"{self.lease:g}s"),
                "postgresql": f"{wire.directory}/{_DATABASE}",
            },
            admin={"listen": f"unix:{directory}/{name}.sock"},
        )
        return Replica(name, directory / f"{name}.yaml", text, fault, wire)

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, directory: Path, lease: float, fault: str = "") -> AsyncIterator[Cluster]:
        with PostgresServer.started() as primary, Cloud(directory) as cloud:
            cluster = cls(directory, cloud, primary, lease, fault)
            async with cluster._stack:
                try:
                    yield cluster
                finally:
                    for replica in cluster.replicas:
                        replica.close()

    async def start(self) -> None:
        for replica in self.replicas:
            await self._stack.enter_async_context(replica.wire.connected())
        await asyncio.gather(*(replica.start() for replica in self.replicas))
        await until(self.has_leader, what="a replica leads", seconds=_SETTLE)

    async def has_leader(self) -> bool:
        return await self.leader() is not None

    async def leader(self, *, but: Replica | None = None) -> Replica | None:
        """The replica that says that it is ready, of those that can be asked; ``but`` is left out."""
        for replica in self.replicas:
            if replica is not but and replica.server is not None and replica.address and not replica.is_stopped:
                with contextlib.suppress(OSError):
                    if await replica.server.is_ready():
                        return replica
        return None

    async def victim(self, dice: random.Random) -> Replica:
        """More often the leader than another."""
        leader = await self.leader()
        living = [replica for replica in self.replicas if replica.server is not None and not replica.is_stopped]
        return leader if leader is not None and dice.random() < 0.7 else dice.choice(living)

    def set_database_clock(self, seconds: float) -> None:
        shift_database_clock(self.primary.url(_DATABASE), seconds)

    async def fail_over(self, lost: float) -> Failover:
        """Goes on with a standby that lacks what was committed in the last ``lost`` seconds."""
        kept = time.monotonic()
        (position,) = self.primary.execute("SELECT pg_current_wal_lsn()::text")[0]
        is_there = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        await until(lambda: bool(self.standby.execute(is_there)[0][0]), what="the standby has caught up")
        await asyncio.to_thread(self.standby.stop)
        await asyncio.sleep(lost)
        elections = self.elections()
        self.is_failing_over = True
        await asyncio.to_thread(self.primary.stop)
        at = time.monotonic()
        await asyncio.to_thread(self.standby.start)
        self.standby.execute("SELECT pg_promote()")
        self.primary = self.standby
        following = self._front.with_suffix(".new")
        following.symlink_to(self.primary.directory)
        following.replace(self._front)

        async def is_settled() -> bool:
            return self.elections() > elections and await self.has_leader()

        await until(is_settled, what="a replica leads on the standby", seconds=_SETTLE)
        failover = Failover(kept=kept, at=at, settled=time.monotonic())
        self.is_failing_over = False
        self.standby = await asyncio.to_thread(self._new_standby)
        return failover

    def elections(self) -> int:
        return sum(replica.elections() for replica in self.replicas)

    def names(self) -> dict[str, str]:
        """The name of every machine that was ever made, by its providerID."""
        return {machine["providerId"]: machine["name"] for machine in self.cloud.ledger()}

    def _new_standby(self) -> PostgresServer:
        return self._stack.enter_context(PostgresServer.started(standby_of=self.primary))
