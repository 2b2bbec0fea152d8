"""Adds row checksums, the cluster's name, the writer's fence, and the position of the engine's clock."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudgraft.store.rows import seal_all

revision = "0006"
down_revision = "0005"
_SEALED = (
    "journal",
    "machines",
    "node_groups",
    "learned",
    "clouds",
    "pauses",
    "requests",
    "declared_groups",
    "events",
)


def upgrade() -> None:
    """Makes the tables and columns, and seals the rows that are there."""
    op.add_column("journal", sa.Column("cluster", sa.Text))
    for name in _SEALED:
        op.add_column(name, sa.Column("checksum", sa.BigInteger))
    op.create_table(
        "progress",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("boot_time", sa.Double, nullable=False),
        sa.Column("checksum", sa.BigInteger),
    )
    op.create_table(
        "fence",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
    )
    connection = op.get_bind()
    for name in _SEALED:  # as the tables are at this version, not as later releases have them
        seal_all(connection, sa.Table(name, sa.MetaData(), autoload_with=connection))
