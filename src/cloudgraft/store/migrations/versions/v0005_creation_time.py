"""Adds the creation time and the marks that prove that an adopted machine is still the same one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the columns. For machines that were adopted before, the next list that shows them fills both."""
    op.add_column("machines", sa.Column("is_marked", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("machines", sa.Column("created_at", sa.Double))
