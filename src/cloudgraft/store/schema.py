"""Defines the journal's tables. A test compares them with what the migrations make.

JSON and decimals are text, times are floating-point seconds since the epoch: so both databases give back exactly what
they were given.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    false,
)

HEAD: Final = "0007"  # the newest migration: what this release of cloudgraft reads and writes

metadata = MetaData()


def _checksum() -> Column[int]:
    """The last column of every table whose rows must not change by themselves: see cloudgraft.store.rows."""
    return Column("checksum", BigInteger)


journal = Table(
    "journal",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is one row, number 1
    Column("cluster_id", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("cluster", Text),  # its name; NULL until a server with a configuration opens it
    _checksum(),
)

machines = Table(
    "machines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("group_id", Text, nullable=False),
    Column("cloud", Text, nullable=False),
    Column("placeholder", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("presence", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("requested_at", Double, nullable=False),
    Column("state_since", Double, nullable=False),
    Column("ordered_at", Double),
    Column("attempt_at", Double),
    Column("attempts", BigInteger, nullable=False),
    Column("gone_at", Double, index=True),
    Column("machine_id", Text, nullable=False),
    Column("provider_id", Text, nullable=False),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("error_class", Integer),
    Column("hourly", Text),
    Column("currency", Text, nullable=False),
    Column("is_adopted", Boolean, nullable=False),
    Column("replaces", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("is_marked", Boolean, nullable=False, server_default=false()),
    Column("created_at", Double),
    _checksum(),
)

node_groups = Table(
    "node_groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("cloud", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("configured", Boolean, nullable=False),
    _checksum(),
)

learned = Table(
    "learned",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("settings", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("facts", Text, nullable=False),
    _checksum(),
)

clouds = Table(
    "clouds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("adopted_at", Double, nullable=False),
    _checksum(),
)

pauses = Table(
    "pauses",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("since", Double, nullable=False),
    Column("reason", Text, nullable=False),
    _checksum(),
)

requests = Table(
    "requests",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("at", Double, nullable=False, index=True),
    _checksum(),
)

declared_groups = Table(
    "declared_groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("document", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    _checksum(),
)

progress = Table(
    "progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is at most one row, number 1
    Column("at", Double, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("boot_time", Double, nullable=False),
    _checksum(),
)

events = Table(
    "events",
    metadata,
    # SQLite numbers rows by itself only where the type is plain INTEGER. AUTOINCREMENT: no number is ever used again.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("cloud", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text),
    Column("data", Text, nullable=False),
    _checksum(),
    Index("ix_events_group_id_seq", "group_id", "seq"),
    Index("ix_events_machine_seq", "machine", "seq"),
    sqlite_autoincrement=True,
)

# The process that writes to a SQLite journal; PostgreSQL has the lease for this.
fence = Table(
    "fence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is at most one row, number 1
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
)

lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is at most one row, number 1
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),  # the time that others wait for the next renewal, each by its own clock
    Column("server", Text, nullable=False),  # the run of the database's server that gave the lease
)

# Alembic's own table, with the columns that Alembic creates. The name leaves "alembic_version" to other programs.
version = Table(
    "cloudgraft_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="cloudgraft_version_pkc"),
)
