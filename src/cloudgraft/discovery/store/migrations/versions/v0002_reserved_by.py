"""Adds the owner of a reservation. Existing reservations have none, because their client is unknown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("discovery_reservations", sa.Column("reserved_by", sa.Text))
