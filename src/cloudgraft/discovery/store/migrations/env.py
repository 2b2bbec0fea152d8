"""Runs the migrations for Alembic. The caller passes the connection, and its transaction encloses everything."""

from __future__ import annotations

from alembic import context

from cloudgraft.discovery.store.schema import metadata, version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=version.name,
)
context.run_migrations()
