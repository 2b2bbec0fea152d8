"""Finds a server's configuration file, and reads from it how commands reach that server.

Reads only the keys needed for that: an operator must reach a server even when its file has become invalid, or names
secrets that only the server may read. It is quick too: the whole file is not validated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from cloudgraft.sdk.errors import InvalidArgumentError

DEFAULT_FILE: Final = Path("cloudgraft.yaml")
_LISTEN: Final = "127.0.0.1:8086"  # unless server.listen says otherwise
_ANY: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104 - addresses to listen on


def file_here(path: Path = DEFAULT_FILE, *, instead: str = "--config FILE", what: str = "configuration") -> Path:
    """The file of that name in this directory, for a command that got no other; a usage error when there is none."""
    if not path.is_file():
        raise click.UsageError(f"say which {what}: {instead} (there is no {path} in this directory)")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a server listens for the autoscaler."""

    address: str  # for a client on this host
    has_tls: bool


def listening(path: Path) -> Listening:
    """Where the server of this file listens for the autoscaler; raises InvalidArgumentError."""
    server = _section(_read(path, instead="--address HOST:PORT does without it"), "server")
    listen = server.get("listen", _LISTEN)
    if not isinstance(listen, str) or listen.rpartition(":")[2] in ("", "0"):
        raise InvalidArgumentError(
            f"{path} does not say where the server listens: server.listen is no address with a fixed port; "
            "give --address HOST:PORT, which the server logs when it starts"
        )
    return Listening(address=reachable(listen), has_tls=bool(server.get("tls")))


def admin_address(path: Path) -> str:
    """The address where the server of this file listens for operators; raises InvalidArgumentError."""
    data = _read(path, instead="--admin ADDRESS does without it")
    admin, store = _section(data, "admin"), _section(data, "store")
    listen, journal = admin.get("listen"), store.get("path")
    if isinstance(listen, str) and not listen.startswith("unix:"):
        return reachable(listen)
    if isinstance(listen, str) and listen.startswith("unix:/"):
        return listen
    if listen is None and store.get("postgresql"):
        return f"unix:{path.absolute().parent / 'cloudgraft'}.sock"
    if listen is None and (journal is None or (isinstance(journal, str) and journal.strip())):
        return f"unix:{path.absolute().parent / (journal or 'journal.db')}.sock"
    raise InvalidArgumentError(
        f"{path} does not say where the server listens for operators: admin.listen must be unix:/path or host:port, "
        "and store.path the path of a file; --admin ADDRESS does without it"
    )


def keys_of(path: Path, section: str) -> list[str]:
    """The keys of a section; none when the file cannot be read."""
    try:
        return [key for key in _section(_read(path, instead=""), section) if isinstance(key, str)]
    except InvalidArgumentError:
        return []


def reachable(listen: str) -> str:
    """The address for a client on this host, of an address that a server listens on."""
    host, colon, port = listen.rpartition(":")
    return f"{_ANY.get(host, host)}{colon}{port}"


def _read(path: Path, *, instead: str) -> object:
    import yaml

    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: an impossible date
        why = error.strerror if isinstance(error, OSError) else "it is not YAML"
        raise InvalidArgumentError(f"cannot read {path}: {why}; {instead}") from error


def _section(data: object, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}
