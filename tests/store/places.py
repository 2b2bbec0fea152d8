"""Places for a journal: a SQLite file, or a database of one's own in a real PostgreSQL. And records to put there."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.lease.lease_row import Claim
from cloudgraft.store.records import Change, Event, MachineRecord, Presence, State
from cloudgraft.store.sql import SqlJournal


class Place(ABC):
    """Where one journal is, however often it is opened."""

    def __init__(self) -> None:
        self._journals: list[SqlJournal] = []
        self._leases: list[Lease] = []

    @abstractmethod
    def database(self) -> Database:
        """A way to it that goes past the journal."""

    @abstractmethod
    def journal(self, *, cluster: str = "", cluster_id: str | None = None) -> SqlJournal:
        """A journal that is not open yet; on PostgreSQL with a lease that is not taken yet."""

    async def opened(self, *, cluster_id: str | None = None) -> SqlJournal:
        """A journal that can be written to."""
        journal = self.journal(cluster_id=cluster_id)
        await journal.open()
        if journal._lease is not None:
            assert await journal._lease.acquire() is not None
        await journal.load()
        return journal

    async def let_go(self) -> None:
        """Closes every journal and gives up every lease."""
        for lease in self._leases:
            await lease.release()
            await lease.close()
        for journal in self._journals:
            await journal.close()


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def database(self) -> Database:
        return SqliteDatabase(self.path)

    def journal(self, *, cluster: str = "", cluster_id: str | None = None) -> SqlJournal:
        self._journals.append(SqlJournal.sqlite(self.path, cluster=cluster, cluster_id=cluster_id))
        return self._journals[-1]


class PostgresPlace(Place):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def database(self) -> Database:
        return PostgresDatabase(PostgresAddress.parse(self.url), patient=True)

    def lease(self, *, seconds: float = 15.0, rollout: str = "") -> Lease:
        self._leases.append(Lease(self.url, seconds=seconds, rollout=rollout))
        return self._leases[-1]

    def journal(self, *, cluster: str = "", cluster_id: str | None = None, lease: Lease | None = None) -> SqlJournal:
        journal = SqlJournal.postgresql(self.url, cluster=cluster, cluster_id=cluster_id, lease=lease or self.lease())
        self._journals.append(journal)
        return journal


@asynccontextmanager
async def renewed(journal: SqlJournal) -> AsyncIterator[None]:
    """The journal's leader goes on renewing its lease, if it has one."""

    async def renew(lease: Lease) -> None:
        while True:
            assert await lease.renew()
            await asyncio.sleep(0.05)

    renewing = asyncio.ensure_future(renew(journal._lease)) if journal._lease else None
    yield
    if renewing is not None:
        renewing.cancel()
        await asyncio.wait({renewing})


def told_when_it_writes(journal: SqlJournal, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the journal's thread is at a write, and not only asked for it."""
    begun, write = threading.Event(), journal._write

    def told(change: Change, claim: Claim | None) -> None:
        begun.set()
        write(change, claim)

    monkeypatch.setattr(journal, "_write", told)
    return begun


def machine(name: str, *, version: int = 1, **changes: object) -> MachineRecord:
    """A running machine."""
    values: dict[str, object] = {
        "name": name,
        "group": "small",
        "cloud": "lab",
        "placeholder": f"placeholder-{name}",
        "state": State.RUNNING,
        "presence": Presence.PRESENT,
        "settings": {"shape": "4c8g", "disks": [1, 2.5, None, True], "note": "größer\0"},
        "tags": {"cloudgraft-name": name},
        "requested_at": 1_700_000_000.123456,
        "state_since": 1_700_000_001.5,
        "ordered_at": 1_700_000_000.25,
        "machine_id": f"id-{name}",
        "provider_id": f"lab://{name}",
        "hourly": Decimal("0.0500"),
        "currency": "EUR",
        "version": version,
    }
    return MachineRecord(**{**values, **changes})  # type: ignore[arg-type]  # a test knows what it asks for


def machines(count: int, *, prefix: str = "m", version: int = 1) -> list[MachineRecord]:
    return [machine(f"{prefix}-{number:04d}", version=version) for number in range(count)]


def event(kind: str = "told", **changes: object) -> Event:
    values: dict[str, object] = {"at": 1_700_000_000.0, "kind": kind, "message": "because"}
    return Event(**{**values, **changes})  # type: ignore[arg-type]  # a test knows what it asks for


def change(*records: MachineRecord) -> Change:
    return Change(machines=records)
