"""Builds the journal from the configuration or from a command line."""

from __future__ import annotations

from pathlib import Path

from cloudgraft.config import Config
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store.databases.address import PostgresAddress, is_url
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.sql import SqlJournal


def journal_from(config: Config) -> tuple[SqlJournal, Lease | None]:
    """The journal of a configuration, and the lease with which its replicas elect a leader; neither is open yet.

    A SQLite file needs no lease: the process that has it open locks the others out. The journal closes the lease.
    """
    address = config.store.postgresql
    if address is None:
        return SqlJournal.sqlite(_path(config), cluster=config.cluster, cluster_id=config.cluster_id), None
    lease = Lease(
        address,
        seconds=config.store.lease_duration.total_seconds(),
        max_clock_offset=config.store.max_clock_offset.total_seconds(),
    )
    journal = SqlJournal.postgresql(address, cluster=config.cluster, cluster_id=config.cluster_id, lease=lease)
    return journal, lease


def database_from(config: Config) -> Database:
    """The database of that journal, for maintenance commands while no server runs."""
    address = config.store.postgresql
    if address is None:
        return SqliteDatabase(_path(config))
    return PostgresDatabase(address, patient=True)


def database_at(place: str) -> Database:
    """The database at a path or at a PostgreSQL URL."""
    if is_url(place):
        return PostgresDatabase(PostgresAddress.parse(place), patient=True)
    return SqliteDatabase(Path(place))


def _path(config: Config) -> Path:
    if config.store.path is None:
        raise PreconditionError("the configuration does not say where the journal is: set store.path")
    return config.store.path
