"""Defines discovery's tables. They must equal what the migrations create; a test compares the two.

JSON is text and times are seconds since the epoch, so that both databases give back exactly what they were given. All
names begin with ``discovery_``: a journal may be in the same PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from cloudgraft.store.databases.layout import Layout

HEAD: Final = "0002"

metadata = MetaData()

# One row, number 1. Every write increments it first, and so locks it until it commits: the writes of all processes are
# serialized, and their numbers become visible in order.
state = Table(
    "discovery_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
)

clusters = Table(
    "discovery_clusters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False, index=True),  # of the last write that changed the cluster
    Column("revision", BigInteger, nullable=False),  # the seq at which the spec was written: never used twice
    Column("spec", Text, nullable=False),
    Column("prices", Text, nullable=False),
    Column("beat", Text),  # what the agent measured last
    Column("beat_at", Double),  # by the clock of the server that received it
)

# Removed clusters, so that other processes notice. A row is small, and there are as many as ids ever used.
removed = Table(
    "discovery_removed",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False, index=True),
)

reservations = Table(
    "discovery_reservations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("cluster_id", Text, nullable=False, index=True),
    Column("owner", Text, nullable=False),
    Column("resources", Text, nullable=False),
    Column("is_confirmed", Boolean, nullable=False),
    Column("expires_at", Double, index=True),  # NULL once it is confirmed
    Column("reserved_by", Text),  # name of the client; NULL: no owner
    UniqueConstraint("owner", "cluster_id", name="uq_discovery_reservations_owner_cluster_id"),
)

credentials = Table(
    "discovery_credentials",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("key_id", Text, nullable=False, index=True),
    Column("ciphertext", LargeBinary, nullable=False),
)

version = Table(
    "cloudgraft_discovery_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="cloudgraft_discovery_version_pkc"),
)

LAYOUT: Final = Layout(
    noun="discovery database",
    metadata=metadata,
    version=version,
    head=HEAD,
    migrations=Path(__file__).with_name("migrations"),
    lock=0x636C6F7564646973,
    upgrade="stop all discovery servers, make a backup, and start one with --upgrade",
    check="restore a backup, or stop all discovery servers and drop its tables",
    after_loss="agents announce their clusters again; what operators declared must be declared again",
)
