"""Runs the migrations for Alembic, on the caller's connection and in the caller's transaction."""

from __future__ import annotations

from alembic import context

from cloudgraft.store.schema import metadata, version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=version.name,
)
context.run_migrations()
