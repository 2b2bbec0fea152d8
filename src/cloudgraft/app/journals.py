"""From the configuration, or from a command line, to the journal."""

from __future__ import annotations

from pathlib import Path

from cloudgraft.config import Config, Postgresql
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store.databases.address import PostgresAddress, is_url
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.sql import SqlJournal

__all__ = ["database_at", "database_from", "journal_from", "postgres_address"]


def journal_from(config: Config) -> tuple[SqlJournal, Lease | None]:
    """The journal that a file asks for, and the lease by which its replicas agree on a leader; neither is open yet.

    A SQLite file needs no lease: whoever has it open keeps the others out. The journal closes the lease with itself.
    """
    database = config.store.postgresql
    if database is None:
        return SqlJournal.sqlite(_path(config), cluster=config.cluster, cluster_id=config.cluster_id), None
    address = postgres_address(database)
    lease = Lease(
        address,
        seconds=config.store.lease_duration.total_seconds(),
        max_clock_offset=config.store.max_clock_offset.total_seconds(),
    )
    journal = SqlJournal.postgresql(address, cluster=config.cluster, cluster_id=config.cluster_id, lease=lease)
    return journal, lease


def database_from(config: Config) -> Database:
    """The database of that journal, for commands that look after it while no server does."""
    database = config.store.postgresql
    if database is None:
        return SqliteDatabase(_path(config))
    return PostgresDatabase(postgres_address(database), patient=True)


def database_at(place: str) -> Database:
    """The database at a path or at a PostgreSQL's URL."""
    if is_url(place):
        return PostgresDatabase(PostgresAddress.parse(place), patient=True)
    return SqliteDatabase(Path(place))


def _path(config: Config) -> Path:
    if config.store.path is None:
        raise PreconditionError("the configuration says nowhere where the journal is: set store.path")
    return config.store.path


def postgres_address(database: Postgresql) -> PostgresAddress:
    """Where a PostgreSQL of a file is, and who logs in there."""
    return PostgresAddress(
        host=database.host,
        port=database.port,
        database=database.database,
        user=database.user,
        password_file=database.password_file,
        sslmode=database.sslmode,
        # libpq does not look at the system's authorities unless it is told to.
        sslrootcert=str(database.ca) if database.ca else "system" if database.sslmode == "verify-full" else "",
    )
