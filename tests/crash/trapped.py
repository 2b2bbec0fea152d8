"""The journal's database and the driver, with a trap at every moment that matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, RootTransaction

from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.store.databases.database import Mode
from cloudgraft.store.databases.sqlite import SqliteDatabase
from tests.crash.points import Kind, Trap, When


class TrappedDatabase(SqliteDatabase):
    """A SQLite journal. Below the journal itself, so that no commit is left out: also those that make the schema."""

    def __init__(self, path: Path, trap: Trap) -> None:
        super().__init__(path)
        self._trap = trap
        self._mode = Mode.READ

    def keep_cluster_id(self, cluster_id: str) -> None:
        self._trap.at(Kind.IDENTITY, When.BEFORE)
        super().keep_cluster_id(cluster_id)
        self._trap.at(Kind.IDENTITY, When.AFTER)

    def _begin(self, connection: Connection, mode: Mode) -> RootTransaction:
        self._mode = mode
        return super()._begin(connection, mode)

    def _commit(self, connection: Connection, transaction: RootTransaction) -> None:
        if self._mode is not Mode.WRITE:
            super()._commit(connection, transaction)
            return
        self._trap.at(Kind.WRITE, When.BEFORE)
        super()._commit(connection, transaction)
        self._trap.at(Kind.WRITE, When.AFTER)


class TrappedDriver(Driver):
    """Any driver."""

    def __init__(self, driver: Driver, trap: Trap) -> None:
        self._driver = driver
        self._trap = trap
        self.traits = driver.traits

    async def create(self, spec: MachineSpec) -> Machine:
        self._trap.at(Kind.CREATE, When.BEFORE)
        try:
            return await self._driver.create(spec)
        finally:
            self._trap.at(Kind.CREATE, When.AFTER)

    async def delete(self, machine: Machine) -> None:
        self._trap.at(Kind.DELETE, When.BEFORE)
        try:
            await self._driver.delete(machine)
        finally:
            self._trap.at(Kind.DELETE, When.AFTER)

    async def list(self) -> Sequence[Machine]:
        self._trap.at(Kind.LIST, When.BEFORE)
        try:
            return await self._driver.list()
        finally:
            self._trap.at(Kind.LIST, When.AFTER)

    async def shapes(self) -> Sequence[Shape]:
        self._trap.at(Kind.CATALOG, When.BEFORE)
        try:
            return await self._driver.shapes()
        finally:
            self._trap.at(Kind.CATALOG, When.AFTER)

    async def prices(self) -> Sequence[Price]:
        return await self._driver.prices()

    async def start(self) -> None:
        await self._driver.start()

    async def close(self) -> None:
        await self._driver.close()
