"""The version of a schema, and how an older one becomes the present one.

Alembic is loaded only when there is something to bring up to date: most starts find what they expect.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, insert, inspect, select

from cloudgraft.store.schema import HEAD, metadata, version

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["Schema", "SchemaState", "alembic_config", "create", "look", "upgrade"]

_MIGRATIONS = Path(__file__).with_name("migrations")


class Schema(enum.Enum):
    """How a database's tables relate to what this release works with."""

    EMPTY = "empty"
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"  # made by a later release
    FOREIGN = "foreign"  # tables that are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """What was found, and its version; "" where it has none."""

    schema: Schema
    revision: str = ""


def look(connection: Connection) -> SchemaState:
    """What is there now."""
    inspector = inspect(connection)
    if not inspector.has_table(version.name):
        others = set(inspector.get_table_names())
        if connection.dialect.name == "postgresql":  # where tables of others are no harm, unless they have our names
            others &= set(metadata.tables)
        return SchemaState(schema=Schema.FOREIGN if others else Schema.EMPTY)
    revision = connection.execute(select(version.c.version_num)).scalar() or ""
    if revision == HEAD:
        return SchemaState(schema=Schema.CURRENT, revision=revision)
    return SchemaState(schema=Schema.OLDER if _is_known(revision) else Schema.NEWER, revision=revision)


def create(connection: Connection) -> None:
    """Makes the present schema in an empty database: what all migrations together make, in one step."""
    metadata.create_all(connection, checkfirst=False)
    version.create(connection)
    connection.execute(insert(version).values(version_num=HEAD))


def upgrade(connection: Connection, to: str = "head") -> None:
    """Runs the migrations that are missing, in the transaction that is open."""
    from alembic import command  # noqa: PLC0415 - see above

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def alembic_config() -> Config:
    """Alembic's configuration, without a file."""
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _is_known(revision: str) -> bool:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    return any(script.revision == revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions())
