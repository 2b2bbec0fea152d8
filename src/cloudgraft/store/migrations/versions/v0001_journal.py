"""Creates the tables of machines, groups, clouds, pauses and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "journal",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    _machines()
    op.create_table(
        "node_groups",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("cloud", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("configured", sa.Boolean, nullable=False),
    )
    op.create_table(
        "clouds",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("adopted_at", sa.Double, nullable=False),
    )
    op.create_table(
        "pauses",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    _events()


def _machines() -> None:
    op.create_table(
        "machines",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("cloud", sa.Text, nullable=False),
        sa.Column("placeholder", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("presence", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("state_since", sa.Double, nullable=False),
        sa.Column("ordered_at", sa.Double),
        sa.Column("attempt_at", sa.Double),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("gone_at", sa.Double, index=True),
        sa.Column("machine_id", sa.Text, nullable=False),
        sa.Column("provider_id", sa.Text, nullable=False),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        sa.Column("error_class", sa.Integer),
        sa.Column("hourly", sa.Text),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("is_adopted", sa.Boolean, nullable=False),
        sa.Column("replaces", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("cloud", sa.Text, nullable=False),
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_group_id_seq", "events", ["group_id", "seq"])
    op.create_index("ix_events_machine_seq", "events", ["machine", "seq"])
