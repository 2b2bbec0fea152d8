"""Describes a kind of database: its tables, their version, and the words for it in messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import MetaData, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The tables of one kind of database. The journal is one; discovery has another."""

    noun: str  # "journal"
    metadata: MetaData
    version: Table  # Alembic's own, with a name that leaves "alembic_version" to others
    head: str  # the newest migration: what this release reads and writes
    migrations: Path  # the directory with env.py
    lock: int  # PostgreSQL's advisory lock for creating or changing the schema
    upgrade: str  # instruction: a PostgreSQL has an older schema
    check: str  # instruction: a table is not as its version says
    after_loss: str  # the consequence of losing the database
    vital: tuple[str, ...] = ()  # tables small enough to have their indexes checked at every opening
    keep: str = ""  # the files to leave in place when a damaged database is moved away
