"""Keeps what proves that an adopted machine is the same one: its creation time, and that our marks are on it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the columns. Of machines that were adopted before, the next list that shows them tells both."""
    op.add_column("machines", sa.Column("is_marked", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("machines", sa.Column("created_at", sa.Double))
