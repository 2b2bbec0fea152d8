"""One simulated cloudgraft process: the real engine, service and journal, which can be killed and started again."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from google.protobuf.message import Message
from sqlalchemy import Connection, RootTransaction

from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.service.cloud_provider import Call, CloudProviderService
from cloudgraft.service.gate import Gate
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.store.databases.database import Database, Mode
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import EventQuery, Journal
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.records import Change, Contents, Event
from cloudgraft.store.sql import SqlJournal
from tests.simulation.determinism import EPOCH
from tests.simulation.kubernetes import ClusterView, SimKubernetes
from tests.simulation.loop import Host, VirtualLoop
from tests.simulation.postgres import SimPostgres


class ServerWitness(Protocol):
    """Who is told of what a server does."""

    def trace(self, who: str, what: str) -> None: ...

    def on_commit(self, server: SimServer, change: Change) -> None: ...

    def on_loaded(self, server: SimServer, contents: Contents) -> None: ...

    def on_refused(self, server: SimServer, error: Exception) -> None: ...

    def on_start(self, server: SimServer) -> None: ...

    def on_death(self, server: SimServer) -> None: ...


class Disk:
    """Where a journal is kept, and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.full_until = 0.0
        self.failing_until = 0.0  # commits fail, and whether they are on the disk is chance
        self.backups: list[tuple[float, Path]] = []

    def files(self) -> list[Path]:
        return [self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm")]

    def back_up(self, now: float) -> None:
        """A copy as `sqlite3 .backup` makes one."""
        target = self.path.with_name(f"backup-{len(self.backups)}.db")
        source, copy = sqlite3.connect(self.path), sqlite3.connect(target)
        source.backup(copy)
        source.close()
        copy.close()
        self.backups.append((now, target))

    def lose(self, *, with_id: bool) -> None:
        for path in self.files():
            path.unlink(missing_ok=True)
        if with_id:
            self.id_file.unlink(missing_ok=True)

    def restore(self, backup: Path) -> None:
        self.lose(with_id=False)
        shutil.copyfile(backup, self.path)

    @property
    def id_file(self) -> Path:
        return self.path.with_name(self.path.name + ".cluster-id")


class SimDatabase(SqliteDatabase):
    """SQLite on a disk that may be full or fail."""

    def __init__(self, disk: Disk, loop: VirtualLoop, dice: Callable[[], float]) -> None:
        super().__init__(disk.path)
        self._disk = disk
        self._loop = loop
        self._dice = dice

    def _begin(self, connection: Connection, mode: Mode) -> RootTransaction:
        if mode is Mode.WRITE and self._loop.time() < self._disk.full_until:
            raise self._meaning(_sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full"), committing=False)
        return super()._begin(connection, mode)

    def _commit(self, connection: Connection, transaction: RootTransaction) -> None:
        if self._loop.time() >= self._disk.failing_until:
            super()._commit(connection, transaction)
            return
        if self._dice() < 0.5:
            super()._commit(connection, transaction)
        else:
            transaction.rollback()
        connection.invalidate()
        raise self._meaning(_sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error"), committing=True)


def _sqlite_error(code: int, message: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


def _take_notice(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class ObservedJournal(Journal):
    """Tells of everything that is committed."""

    def __init__(self, inner: Journal, server: SimServer) -> None:
        self._inner = inner
        self._server = server

    @property
    def fenced_by(self) -> str:  # type: ignore[override]  # what the journal says at any moment
        return self._inner.fenced_by

    async def open(self) -> None:
        await self._inner.open()

    async def load(self) -> Contents:
        contents = await self._inner.load()
        self._server.witness.on_loaded(self._server, contents)
        return contents

    async def write(self, change: Change) -> None:
        try:
            await self._inner.write(change)
        except CloudgraftError as error:
            self._server.trace(f"commit fails {type(error).__name__}")
            raise
        self._server.witness.on_commit(self._server, change)

    async def events(self, query: EventQuery) -> Sequence[Event]:
        return await self._inner.events(query)

    async def purge(self, *, gone_before: float, events_before: float, limit: int = 1000) -> int:
        return await self._inner.purge(gone_before=gone_before, events_before=events_before, limit=limit)

    async def close(self) -> None:
        await self._inner.close()


class SimServer:
    """One replica. Its machine, and so its clocks, outlive its process."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        *,
        disk: Disk,
        postgres: SimPostgres | None = None,
        kubernetes: SimKubernetes,
        desired_state: Callable[[], DesiredState],
        witness: ServerWitness,
        dice: Callable[[], float],
    ) -> None:
        self.name = name
        self.disk = disk
        self.postgres = postgres
        self.witness = witness
        self.wall_offset = 0.0
        self.drift = 0.0
        self.cluster_id: str | None = None  # as `clusterId:` gives it
        self.host: Host | None = None
        self.engine: Engine | None = None
        self.service: CloudProviderService | None = None
        self.is_open = False  # it answers
        self.refused = ""  # why it did not start
        self.lives = 0
        self._life: asyncio.Task[None] | None = None
        self.started_at = 0.0
        self._database: Database | None = None
        self._lease: Lease | None = None
        self._machine: Host | None = None  # the last process here: the machine's clocks go on from it
        self._loop = loop
        self._kubernetes = kubernetes
        self._desired_state = desired_state
        self._dice = dice

    def trace(self, what: str) -> None:
        self.witness.trace(self.name, what)

    @property
    def is_up(self) -> bool:
        return self.host is not None and not self.host.is_dead

    @property
    def is_serving(self) -> bool:
        """Whether it answers, is not frozen, and leads."""
        if not self.is_up or not self.is_open or self.engine is None or self.host is None or self.host.is_frozen:
            return False
        return self.host.inside(self._is_answering)

    def _is_answering(self) -> bool:
        assert self.engine is not None
        try:
            self.engine.check_open()
        except CloudgraftError:
            return False
        return True

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader at this moment."""
        if not self.is_up or self.engine is None or self.host is None or self.host.is_frozen:
            return False
        engine = self.engine
        return self.host.inside(engine._leadership.is_leader)

    def order(self) -> float:
        """Grows with each process, or each leader, that may write."""
        claim = self._lease.claim if self._lease is not None else None
        return self.started_at if claim is None else claim.epoch

    def start(self) -> None:
        """A new process on this machine."""
        if self.is_up:
            return
        self.lives += 1
        self.started_at = self._loop.time()
        self.refused = ""
        host = self.host = Host(self._loop, f"{self.name}", epoch=EPOCH)
        host.clocks_of(self._machine)
        host.wall_offset = self.wall_offset
        host.set_drift(self.drift)
        self._machine = host
        host.on_death = self._died
        self.trace("start")
        self._life = host.spawn(self._live(host), f"{self.name} life {self.lives}")

    async def _live(self, host: Host) -> None:
        journal = ObservedJournal(self._journal(), self)
        engine = self.engine = Engine(
            self._desired_state(),
            journal,
            clock=SystemClock(wall=host.wall, ran=host.ran, boot_id=lambda: self.name),
            cluster=ClusterView(self._kubernetes, host),
            lease=self._lease,
        )
        self.witness.on_start(self)
        provider = EngineProvider(engine)
        try:
            await provider.start()
        except Exception as error:  # noqa: BLE001 - the process ends, with whatever it says
            self.refused = str(error) or type(error).__name__
            self.trace(f"refuses to start: {type(error).__name__}")
            self.witness.on_refused(self, error)
            host.kill()
            return
        self.service = CloudProviderService(provider, metrics=ServiceMetrics(), gate=Gate(engine.check_open))
        self.is_open = True
        self.trace("serves")

    def _journal(self) -> SqlJournal:
        cluster = self._desired_state().cluster
        if self.postgres is None:
            database = SimDatabase(self.disk, self._loop, self._dice)
            self._database = database
            return SqlJournal(database, cluster=cluster, cluster_id=self.cluster_id)
        self._lease = Lease(cast("Any", self.postgres), holder=self.name, seconds=60.0, max_clock_offset=60.0)
        journal = SqlJournal.postgresql(
            cast("Any", self.postgres), cluster=cluster, cluster_id=self.cluster_id, lease=self._lease
        )
        self._database = journal._database
        return journal

    def set_clock(self, offset: float) -> None:
        self.wall_offset = offset
        if self.host is not None:
            self.host.wall_offset = offset

    def set_drift(self, drift: float) -> None:
        """The clocks of this machine run faster from now on, by that share of a second per second."""
        self.drift = drift
        if self.host is not None:
            self.host.set_drift(drift)

    def crash(self, steps: int = 0) -> None:
        """Kill -9, after so many more callbacks."""
        if self.host is not None and not self.host.is_dead:
            self.host.kill_after(steps)

    def _died(self) -> None:
        self.trace("dead")
        self.is_open = False
        self._close()
        self.witness.on_death(self)

    def discard(self) -> None:
        """Ends it with the run."""
        if self.host is not None:
            self.host.is_dead = True
        self._close()

    def _close(self) -> None:
        """Lets go of what the system would: connections and locks."""
        if self._database is not None:
            self._database.close()
        if self._lease is not None:
            self._lease._database.close()
        self._database = self._lease = None

    async def call(self, rpc: str, request: Message, seconds: float = 30.0) -> Any:
        """A call of a client outside."""
        host, service = self.host, self.service
        if host is None or host.is_dead or service is None or not self.is_open:
            await asyncio.sleep(0.01)
            raise UnavailableError("connection refused")
        task = host.spawn(service.handle(rpc, request, Call(seconds_left=seconds)), rpc)
        await asyncio.wait({task}, timeout=seconds + 1)
        if not task.done():
            task.add_done_callback(_take_notice)
            raise UnavailableError("no answer")
        return task.result()
