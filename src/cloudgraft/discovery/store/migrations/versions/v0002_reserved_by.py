"""Whose a reservation is. Of those that are there already nobody knows: they are of nobody in particular."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("discovery_reservations", sa.Column("reserved_by", sa.Text))
