"""Keeps the creation time that a cloud reported of a machine when it was found or adopted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the column. Machines that were adopted before get their time from the next list that shows them."""
    op.add_column("machines", sa.Column("created_at", sa.Double))
