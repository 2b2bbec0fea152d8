"""Connects `status`, `explain`, `pause` and other commands to the running server: options, connection, errors."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import yaml

from cloudgraft.admin.client import AdminClient, ClientTls
from cloudgraft.cli.terminal import clean, duration, fail
from cloudgraft.config import ConfigError, parse
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

CALL_LIMIT: Final = timedelta(seconds=30)
DEFAULT_FILE: Final = Path("cloudgraft.yaml")
_ANY: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104 - addresses to listen on


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The server that a command calls, and how."""

    config: Path | None
    address: str
    cert: Path | None
    key: Path | None
    cacert: Path | None
    server_name: str
    timeout: timedelta | None  # of each call; None: the default

    def call(self, method: str, request: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Makes one call; raises CloudgraftError."""

        async def ask() -> dict[str, Any]:
            async with self.connect() as client:
                return await client.call(method, request)

        return asyncio.run(ask())

    def connect(self) -> AdminClient:
        """A client of the server, not connected yet."""
        if self.address and self.config is not None:
            raise click.UsageError("--config and --admin exclude each other: use one of them")
        address = self.address or _address_in(self.config or _default())
        return AdminClient(address, tls=self._tls(address), timeout=(self.timeout or CALL_LIMIT).total_seconds())

    def _tls(self, address: str) -> ClientTls | None:
        given = (self.cert, self.key, self.cacert)
        if address.startswith(("unix:", "/")):
            if any(given):
                raise click.UsageError("--cert, --key and --cacert are for a host:port, not for a socket")
            return None
        if self.cert is None or self.key is None or self.cacert is None:
            raise click.UsageError(
                f"the admin port {clean(address)} speaks TLS: give --cert, --key and --cacert "
                "(`cloudgraft certs client` makes a certificate for an operator)"
            )
        return ClientTls(cert=self.cert, key=self.key, ca=self.cacert, server_name=self.server_name)


def options(
    command: Callable[..., None] | None = None, *, timeout: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Adds the options that select a server; the command gets ``admin``. An error is one line, and exit code 1.

    ``timeout`` replaces the option ``--timeout``, for a command in which that is the limit of more than one call.
    """
    if command is None:
        return functools.partial(options, timeout=timeout)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        admin = Admin(**{field.name: kwargs.pop(field.name) for field in fields(Admin)})
        try:
            command(*args, admin=admin, **kwargs)
        except CloudgraftError as error:
            fail(error.message)

    for option in reversed((*_OPTIONS, timeout or _TIMEOUT)):
        run = option(run)
    return run


_file: Final = click.Path(path_type=Path, dir_okay=False)
_OPTIONS: Final = (
    click.option(
        "-c",
        "--config",
        type=_file,
        metavar="FILE",
        help="The server's configuration file, which says where operators reach it. Default: ./cloudgraft.yaml.",
    ),
    click.option(
        "--admin",
        "address",
        default="",
        metavar="ADDRESS",
        help="Where it listens, instead: unix:/path, or host:port with TLS.",
    ),
    click.option("--cert", type=_file, metavar="FILE", help="The operator's certificate, for a host:port."),
    click.option("--key", type=_file, metavar="FILE", help="Its private key."),
    click.option("--cacert", type=_file, metavar="FILE", help="The authority that signed the server's certificate."),
    click.option(
        "--server-name", default="", metavar="NAME", help="The name in the server's certificate, if not the host."
    ),
)
_TIMEOUT: Final = click.option("--timeout", default="30s", show_default=True, callback=duration, metavar="DURATION")


def _default() -> Path:
    if not DEFAULT_FILE.is_file():
        raise click.UsageError(
            f"say which server: --config FILE, or --admin ADDRESS (there is no {DEFAULT_FILE} in this directory)"
        )
    return DEFAULT_FILE


def _address_in(path: Path) -> str:
    """The admin address of the server of this file.

    Reads only the keys needed for that: an operator must reach a server even when its file has become invalid, or names
    secrets that only the server may read.
    """
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: an impossible date
        why = error.strerror if isinstance(error, OSError) else "it is not YAML"
        raise InvalidArgumentError(f"cannot read {path}: {why}; --admin ADDRESS does without it") from error
    admin, store = (_section(data, key) for key in ("admin", "store"))
    listen = admin.get("listen")
    if isinstance(listen, str) and not listen.startswith("unix:"):
        host, colon, port = listen.rpartition(":")
        return f"{_ANY.get(host, host)}{colon}{port}"
    kept = {"postgresql": "any/any", "user": "any"} if store.get("postgresql") else {"path": store.get("path")}
    least = {
        "cluster": "any",
        "providers": [{"type": "memory"}],
        "admin": {"listen": listen} if listen is not None else {},
        "store": {key: value for key, value in kept.items() if value is not None},
    }
    try:
        return parse(yaml.safe_dump(least), path.absolute().parent, name=str(path)).admin_address()
    except ConfigError as error:
        what = "; ".join(problem.message for problem in error.problems)
        raise InvalidArgumentError(
            f"{path} does not say where the server listens for operators: {what}; --admin ADDRESS does without it"
        ) from error


def _section(data: object, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}
