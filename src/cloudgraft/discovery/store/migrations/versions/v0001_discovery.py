"""Creates the first discovery database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates all tables."""
    op.create_table(
        "discovery_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "discovery_clusters",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False, index=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("prices", sa.Text, nullable=False),
        sa.Column("beat", sa.Text),
        sa.Column("beat_at", sa.Double),
    )
    op.create_table(
        "discovery_removed",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False, index=True),
    )
    op.create_table(
        "discovery_reservations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("cluster_id", sa.Text, nullable=False, index=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("resources", sa.Text, nullable=False),
        sa.Column("is_confirmed", sa.Boolean, nullable=False),
        sa.Column("expires_at", sa.Double, index=True),
        sa.UniqueConstraint("owner", "cluster_id", name="uq_discovery_reservations_owner_cluster_id"),
    )
    op.create_table(
        "discovery_credentials",
        sa.Column("cluster_id", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False, index=True),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
    )
