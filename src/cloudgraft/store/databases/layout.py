"""What tells one kind of database from another: its tables, their version, and the words that people are told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import MetaData, Table

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The tables of one kind of database. The journal is one; discovery has another."""

    noun: str  # "journal"
    metadata: MetaData
    version: Table  # Alembic's own, with a name that leaves "alembic_version" to others
    head: str  # the newest migration: what this release reads and writes
    migrations: Path  # the directory with env.py
    lock: int  # PostgreSQL's advisory lock of whoever makes or changes the schema
    upgrade: str  # what a person does about a PostgreSQL with an older schema
    check: str  # what a person does when a table is not as its version says
    after_loss: str  # what follows once the database is lost
    vital: tuple[str, ...] = ()  # tables small enough to have their indexes checked at every opening
    keep: str = ""  # what is to be left in place when a damaged file is moved away
