"""Reads the address of a PostgreSQL server and the credentials for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.journal import JournalUnavailableError

_SCHEMES: Final = ("postgresql://", "postgres://")
_OPTIONS: Final = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey")
_EXAMPLE: Final = "postgresql://cloudgraft@db.example.org:5432/cloudgraft?sslmode=verify-full"


def is_url(text: str) -> bool:
    """Whether this is the address of a PostgreSQL and not a path."""
    return text.startswith(_SCHEMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Connection parameters for libpq. An empty one means libpq's own default, environment variables included.

    ``host`` may be the directory of a socket, or several hosts with commas. The password file is read again for every
    connection, so that a password can be changed without a restart.
    """

    host: str = ""
    port: int | None = None
    database: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: Path | None = None
    sslmode: str = ""
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""

    @classmethod
    def parse(cls, url: str) -> PostgresAddress:
        """From ``postgresql://user@host:port/database?sslmode=…``. The URL is not repeated in errors: it may have a
        password in it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidArgumentError(f"this is not the URL of a PostgreSQL; write it like {_EXAMPLE}") from None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_OPTIONS))
        if not is_url(url) or unknown:
            reason = f"it cannot have {', '.join(unknown)}" if unknown else "the scheme is another"
            raise InvalidArgumentError(f"this is not the URL of a PostgreSQL: {reason}; write it like {_EXAMPLE}")
        given_port = options.get("port", "")
        if given_port and not re.fullmatch(r"\d{1,5}", given_port):
            raise InvalidArgumentError(f"the port of a PostgreSQL is a number; write the URL like {_EXAMPLE}")
        return cls(
            host=options.get("host", "") or unquote(parts.hostname or ""),
            port=int(given_port) if given_port else port,
            database=unquote(parts.path.removeprefix("/")),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            sslmode=options.get("sslmode", ""),
            sslrootcert=options.get("sslrootcert", ""),
            sslcert=options.get("sslcert", ""),
            sslkey=options.get("sslkey", ""),
        )

    def __str__(self) -> str:
        """For messages: without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"postgresql://{user}{host}{f':{self.port}' if self.port else ''}/{self.database}"

    def parameters(self) -> dict[str, str | int]:
        """As libpq names them; reads the password file."""
        known: dict[str, str | int | None] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.user,
            "password": self._current_password(),
            "sslmode": self.sslmode,
            "sslrootcert": self.sslrootcert,
            "sslcert": self.sslcert,
            "sslkey": self.sslkey,
        }
        return {name: value for name, value in known.items() if value}

    def _current_password(self) -> str:
        if self.password_file is None:
            return self.password
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            reason = error.strerror or error
        except UnicodeDecodeError:
            reason = "it is not text"
        raise JournalUnavailableError(f"cannot read the password for {self} from {self.password_file}: {reason}")
