"""Checks the version of a schema and migrates an older one.

Alembic is loaded only when there is something to migrate: most starts find the current version.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, insert, inspect, select

from cloudgraft.store.databases.layout import Layout
from cloudgraft.store.schema import HEAD, metadata, version

if TYPE_CHECKING:
    from alembic.config import Config

JOURNAL: Final = Layout(
    noun="journal",
    metadata=metadata,
    version=version,
    head=HEAD,
    migrations=Path(__file__).with_name("migrations"),
    lock=0x636C6F7564677266,
    upgrade="stop all replicas, make a backup, and run `cloudgraft db upgrade`",
    check="run `cloudgraft db check`",
    after_loss="without a journal it takes in its machines from the clouds before it creates anything",
    vital=tuple(name for name in metadata.tables if name not in {"events", "lease"}),
    keep=", but leave its .cluster-id file",
)


class Schema(enum.Enum):
    """A database's schema compared with the one of this release."""

    EMPTY = "empty"
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"  # made by a later release
    FOREIGN = "foreign"  # tables that are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The schema that was found, and its version; "" where it has none."""

    schema: Schema
    revision: str = ""


def look(connection: Connection, layout: Layout = JOURNAL) -> SchemaState:
    """What is there now."""
    inspector = inspect(connection)
    if not inspector.has_table(layout.version.name):
        others = set(inspector.get_table_names())
        if connection.dialect.name == "postgresql":  # where tables of others are no harm, unless they have our names
            others &= set(layout.metadata.tables)
        return SchemaState(schema=Schema.FOREIGN if others else Schema.EMPTY)
    revision = connection.execute(select(layout.version.c.version_num)).scalar() or ""
    if revision == layout.head:
        return SchemaState(schema=Schema.CURRENT, revision=revision)
    return SchemaState(schema=Schema.OLDER if _is_known(revision, layout) else Schema.NEWER, revision=revision)


def create(connection: Connection, layout: Layout = JOURNAL) -> None:
    """Makes the present schema in an empty database: what all migrations together make, in one step."""
    layout.metadata.create_all(connection, checkfirst=False)
    layout.version.create(connection)
    connection.execute(insert(layout.version).values(version_num=layout.head))


def upgrade(connection: Connection, to: str = "head", layout: Layout = JOURNAL) -> None:
    """Runs the migrations that are missing, in the transaction that is open."""
    from alembic import command  # noqa: PLC0415 - see above

    config = alembic_config(layout)
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def alembic_config(layout: Layout = JOURNAL) -> Config:
    """Alembic's configuration, without a file."""
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(layout.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _is_known(revision: str, layout: Layout) -> bool:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    scripts = ScriptDirectory.from_config(alembic_config(layout))
    return any(script.revision == revision for script in scripts.walk_revisions())
