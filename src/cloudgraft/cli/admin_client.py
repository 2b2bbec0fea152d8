"""Connects `status`, `explain`, `pause` and other commands to the running server: options, connection, errors."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cloudgraft.cli.progress import working
from cloudgraft.cli.server_file import admin_address, file_here
from cloudgraft.cli.terminal import clean, duration, fail
from cloudgraft.cli.waiting import wait_option, wait_while
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

CALL_LIMIT: Final = timedelta(seconds=30)

if TYPE_CHECKING:
    from cloudgraft.admin.client import AdminClient, ClientTls


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
    wait: timedelta | None = None  # for a server that is just starting

    def call(self, method: str, request: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Makes one call; raises CloudgraftError."""

        async def ask() -> dict[str, Any]:
            async with self.connect() as client:
                return await client.call(method, request)

        with working("waiting for the server"):
            if self.wait is not None:
                wait_while(self._is_away, self.wait)
            return asyncio.run(ask())

    async def _is_away(self) -> bool:
        """Whether nobody answers; a read, so that it can be repeated."""
        async with self.connect() as client:
            try:
                await client.call("Status", {})
            except (UnavailableError, DeadlineError):
                return True
            except CloudgraftError:
                return False  # a dock alone has no such method
            return False

    def connect(self) -> AdminClient:
        """A client of the server, not connected yet."""
        from cloudgraft.admin.client import AdminClient

        if self.address and self.config is not None:
            raise click.UsageError("--config and --admin exclude each other: use one of them")
        address = self.address or admin_address(
            self.config or file_here(what="server", instead="--config FILE, or --admin ADDRESS")
        )
        return AdminClient(address, tls=self._tls(address), timeout=(self.timeout or CALL_LIMIT).total_seconds())

    def _tls(self, address: str) -> ClientTls | None:
        from cloudgraft.admin.client import ClientTls

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
    command: Callable[..., None] | None = None, *, timeout: Callable[..., Any] | None = None, wait: str = ""
) -> Callable[..., Any]:
    """Adds the options that select a server; the command gets ``admin``. An error is one line, and exit code 1.

    ``timeout`` replaces the option ``--timeout``, for a command in which that is the limit of more than one call.
    ``wait`` adds ``--wait``, and is what the command does when the server answers; its class is WaitingCommand.
    """
    if command is None:
        return functools.partial(options, timeout=timeout, wait=wait)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        admin = Admin(**{field.name: kwargs.pop(field.name) for field in fields(Admin) if field.name in kwargs})
        try:
            command(*args, admin=admin, **kwargs)
        except UnavailableError as error:
            fail(error.message, hint="if it is just starting, add --wait" if wait and admin.wait is None else "")
        except CloudgraftError as error:
            fail(error.message)

    for option in reversed((*_OPTIONS, timeout or _TIMEOUT, *([wait_option(wait)] if wait else []))):
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
