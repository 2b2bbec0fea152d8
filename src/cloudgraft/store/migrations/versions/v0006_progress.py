"""How far the engine's clock has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "progress",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("boot_time", sa.Double, nullable=False),
    )
