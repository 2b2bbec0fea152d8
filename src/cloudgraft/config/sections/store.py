"""Defines the address of a database, and the `store` section: where the journal is kept, and for how long."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, ValidationInfo, field_validator

from cloudgraft.config.fields import Duration, Kind, LoadContext, NewFile, PositiveDuration, ReadableFile, Text, refuse
from cloudgraft.config.section import Section
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.store.databases.address import PostgresAddress

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
_DATABASE = re.compile(r"(?P<host>/.*?|\[[^\[\]]+\]|[^\s:\[\]/@]+)(?::(?P<port>[0-9]{1,5}))?/(?P<database>[^\s/?]+)")
_PORT = 5432


def _address(value: str) -> str:
    match = _DATABASE.fullmatch(value)
    if match is None:
        hint = "for example db.example/cloudgraft"
        if "@" in value or "://" in value:
            hint += "; user and passwordFile have keys of their own"
        raise refuse("must be host/database or host:port/database", hint)
    if match["port"] and not 1 <= int(match["port"]) <= 65535:
        raise refuse("the port must be between 1 and 65535", "for example db.example:5432/cloudgraft")
    return value


_Address = Annotated[StrictStr, AfterValidator(_address), Kind("host/database or host:port/database")]


class DatabasePlace(Section):
    """A SQLite file, or a PostgreSQL database."""

    default_file: ClassVar[str]  # beside the configuration

    # Those that decide what the others may be come first.
    address: _Address | None = Field(
        None, alias="postgresql", description="A PostgreSQL database, instead of `path`.", examples=["db/cloudgraft"]
    )
    path: NewFile | None = Field(None, validate_default=True, description="A SQLite file.")
    user: Text | None = Field(
        None, validate_default=True, description="The user to log in as. Needed for `postgresql`."
    )
    password_file: ReadableFile | None = Field(
        None, description="A file with only the password; without it, PostgreSQL must accept the user otherwise."
    )
    sslmode: SslMode | None = Field(
        None,
        description="As in PostgreSQL's own clients; `verify-full`, or `prefer` if the database is on this host.",
    )
    ca: ReadableFile | None = Field(
        None, description="The authority that signed the database's certificate; by default those of the system."
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if info.data.get("address", "") is not None:  # a wrong one has its own problem
            if value is not None:
                raise refuse("does not go together with postgresql", "remove one of the two")
            return None
        if value is not None:
            return value
        return (info.context.base_dir if isinstance(info.context, LoadContext) else Path()) / cls.default_file

    @field_validator("user")
    @classmethod
    def _check_user(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("address") is not None:
            raise refuse("is missing", "for example user: cloudgraft")
        return value

    @field_validator("user", "password_file", "sslmode", "ca", "lease_duration", "max_clock_offset", check_fields=False)
    @classmethod
    def _check_belongs(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("address", "") is None:
            raise refuse("only goes together with postgresql", "a SQLite file needs none")
        return value

    @property
    def postgresql(self) -> PostgresAddress | None:
        """The PostgreSQL database, if it is one."""
        match = _DATABASE.fullmatch(self.address or "")
        if match is None or self.user is None:
            return None
        host = match["host"].strip("[]")
        is_here = host.startswith("/") or is_loopback_host(host)
        sslmode = self.sslmode or ("prefer" if is_here else "verify-full")
        return PostgresAddress(
            host=host,
            port=int(match["port"] or _PORT),
            database=match["database"],
            user=self.user,
            password_file=self.password_file,
            sslmode=sslmode,
            # libpq uses the system's CAs only on request.
            sslrootcert=str(self.ca) if self.ca else "system" if sslmode == "verify-full" else "",
        )


def _again(value: Any) -> Any:
    return {} if isinstance(value, DatabasePlace) else value


# Validates the default again, with the context: the default file, too, is beside the configuration.
beside_the_file = BeforeValidator(_again)


class Store(DatabasePlace):
    """Where the journal is kept: a SQLite file of one server, or a PostgreSQL database that several replicas share."""

    default_file = "journal.db"
    path: NewFile | None = Field(
        None, validate_default=True, description=f"A SQLite file; `{default_file}` unless there is `postgresql`."
    )
    lease_duration: PositiveDuration = Field(
        timedelta(seconds=15),
        description="How long a silent leader stays the leader: another replica waits that long.",
    )
    max_clock_offset: PositiveDuration = Field(
        timedelta(minutes=1),
        description="How far a replica's clock may differ from the database's. Beyond it, another replica leads.",
    )
    keep_gone: Duration = Field(
        timedelta(days=2),
        description="How long machines that are gone are kept; at least a day, because guards count the cost of a day.",
    )
    keep_events: Duration = Field(timedelta(days=14), description="How long events and histories are kept.")

    @field_validator("keep_gone")
    @classmethod
    def _check_keep_gone(cls, value: timedelta) -> timedelta:
        if value < timedelta(days=1):
            raise refuse("must be at least a day, because guards count what was spent in one", "for example 48h")
        return value
