"""Creates the table of learned templates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "learned",
        sa.Column("group_id", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
    )
