"""Builds the journal from the configuration or from a command line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from cloudgraft.config import Config
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store.databases.address import PostgresAddress, is_url
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.sql import SqlJournal

# A variable and not a key of the configuration: an older release refuses keys that it does not know, and must start in
# a pod that a newer chart describes.
_ROLLOUT: Final = "CLOUDGRAFT_ROLLOUT"


def journal_from(config: Config) -> tuple[SqlJournal, Lease | None]:
    """The journal of a configuration, and the lease with which its replicas elect a leader; neither is open yet.

    A SQLite file needs no lease: the process that has it open locks the others out. The journal closes the lease.
    """
    address = config.store.postgresql
    if address is None:
        return SqlJournal.sqlite(_path(config), cluster=config.cluster, cluster_id=config.cluster_id), None
    lease = Lease(
        address,
        rollout=rollout(),
        seconds=config.store.lease_duration.total_seconds(),
        max_clock_offset=config.store.max_clock_offset.total_seconds(),
    )
    journal = SqlJournal.postgresql(address, cluster=config.cluster, cluster_id=config.cluster_id, lease=lease)
    return journal, lease


def rollout() -> str:
    """The name of the rollout that this process belongs to, as Kubernetes gives it; empty elsewhere."""
    return re.sub(r"[^\w.-]", "", os.environ.get(_ROLLOUT, ""), flags=re.ASCII)[:63]


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
