"""Replaces the lease's end, which was by the database's clock, with a counter of renewals.

No replica leads while this runs. The epoch is kept, so that epochs go on growing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Makes the table again, with its epoch."""
    connection = op.get_bind()
    epoch = connection.execute(sa.text("SELECT epoch FROM lease WHERE id = 1")).scalar()
    op.drop_table("lease")
    lease = op.create_table(
        "lease",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("renewals", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
    )
    if epoch is not None:
        free = {"id": 1, "holder": "", "epoch": epoch, "renewals": 0, "seconds": 0.0, "server": ""}
        op.bulk_insert(lease, [free])
