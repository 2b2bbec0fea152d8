"""Connects commands to a discovery server: options, connection, and errors as one line."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from cloudgraft.cli.terminal import fail
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.web.client import ClientTls

T = TypeVar("T")
_file: Final = click.Path(path_type=Path, dir_okay=False)
_FILE: Final = Path("discovery.yaml")
_LISTEN: Final = "127.0.0.1:9010"
_ANY: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - addresses to listen on
_OPTIONS: Final = (
    click.option(
        "--server",
        default="",
        envvar="CLOUDGRAFT_DISCOVERY",
        metavar="URL",
        help="The discovery server, such as https://discovery.example:9010; also from $CLOUDGRAFT_DISCOVERY. Default: "
        "where ./discovery.yaml says that it listens, else http://127.0.0.1:9010.",
    ),
    click.option("--cacert", type=_file, metavar="FILE", help="The authority that signed its certificate."),
    click.option("--cert", type=_file, metavar="FILE", help="Your certificate."),
    click.option("--key", type=_file, metavar="FILE", help="Its private key."),
    click.option("--token-file", type=_file, metavar="FILE", help="A file with your token, instead or beside."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The server that a command calls, and the client's credentials."""

    server: str
    tls: ClientTls
    token_file: Path | None

    def call(self, ask: Callable[[DiscoveryClient], Awaitable[T]]) -> T:
        """Makes one or more calls; raises CloudgraftError."""

        async def run() -> T:
            async with DiscoveryClient(self.server, tls=self.tls, token_file=self.token_file, timeout=15.0) as client:
                return await ask(client)

        return asyncio.run(run())


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that select a server; the command gets ``remote``. An error is one line, and exit code 1."""

    @functools.wraps(command)
    def run(
        *args: Any,
        server: str,
        cacert: Path | None,
        cert: Path | None,
        key: Path | None,
        token_file: Path | None,
        **kwargs: Any,
    ) -> None:
        if (cert is None) != (key is None):
            raise click.UsageError("--cert and --key go together: give both, or none")
        remote = Remote(
            server=server or _default(), tls=ClientTls(ca=cacert, cert=cert, key=key), token_file=token_file
        )
        try:
            command(*args, remote=remote, **kwargs)
        except CloudgraftError as error:
            fail(error.message)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _default() -> str:
    """The server of the file in this directory. Reads only the keys needed for its address."""
    try:
        data = yaml.safe_load(_FILE.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        data = None
    said = data if isinstance(data, dict) else {}
    listen = said.get("listen")
    host, colon, port = (listen if isinstance(listen, str) else _LISTEN).rpartition(":")
    scheme = "https" if said.get("tls") else "http"
    return f"{scheme}://{_ANY.get(host, host)}{colon}{port}"
