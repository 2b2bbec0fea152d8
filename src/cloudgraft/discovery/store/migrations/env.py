"""What Alembic runs to run the migrations. The caller gives the connection, and its transaction is around it all."""

from __future__ import annotations

from alembic import context

from cloudgraft.discovery.store.schema import metadata, version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=version.name,
)
context.run_migrations()
