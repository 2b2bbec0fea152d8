"""Makes the call of `cloudgraft call`, and prints its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from google.protobuf.message import Message

from cloudgraft.cli.call_messages import CATALOGUE, build_request, find_rpc, notes, to_json, to_people
from cloudgraft.cli.progress import working
from cloudgraft.cli.server_file import file_here, listening
from cloudgraft.cli.terminal import clean, fail, print_table
from cloudgraft.cli.waiting import wait_while
from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.client.connection import Connection
from cloudgraft.client.errors import is_answer, status_of
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InvalidArgumentError, StatusCode, UnavailableError
from cloudgraft.wire.rpc import Rpc

_HINTS: Final = {
    StatusCode.DEADLINE_EXCEEDED: "give it longer with --timeout; a change may have been made all the same",
    StatusCode.UNIMPLEMENTED: "the provider cannot do this (templates, options and prices are optional), "
    "or this is no externalgrpc server at all",
    StatusCode.NOT_FOUND: "`cloudgraft call NodeGroups` shows the ids that exist",
    StatusCode.INVALID_ARGUMENT: "look at --data; `cloudgraft call --list` has an example",
    StatusCode.UNAUTHENTICATED: "give a client certificate with --cert and --key",
    StatusCode.PERMISSION_DENIED: "the server does not allow this client: see allowedClients in its configuration",
    StatusCode.INTERNAL: "it is the server's fault: its log has the rest",
    StatusCode.UNKNOWN: "it is the server's fault: its log has the rest",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options that select a server; empty where not given."""

    address: str
    cloud_config: str
    config: Path | None
    url: str
    key: str
    cert: str
    cacert: str

    def resolve(self) -> CloudConfig:
        """The cloud-config that they describe; a usage error for two servers, or for none."""
        given = sum(map(bool, (self.address, self.cloud_config, self.config, self.url)))
        if given > 1:
            raise click.UsageError("--address, --cloud-config, --config and --url exclude each other: use one of them")
        if not given or self.config is not None:
            return self._of_file()
        if self.cloud_config:
            if self.key or self.cert or self.cacert:
                raise click.UsageError("--key, --cert and --cacert do not go with --cloud-config, which has its own")
            return CloudConfig.load(self.cloud_config)
        if self.url:
            return CloudConfig.from_url(self.url, key=self.key, cert=self.cert, cacert=self.cacert)
        return self._at(self.address)

    def _of_file(self) -> CloudConfig:
        """The server of a configuration file. The file has the server's own key: a client needs another."""
        path = self.config or file_here(
            what="server", instead="--config FILE, --address HOST:PORT, --cloud-config FILE or --url URL"
        )
        found = listening(path)
        if found.has_tls and not (self.cert and self.key and self.cacert):
            raise click.UsageError(
                f"the server of {path} speaks TLS: give --cert, --key and --cacert of a client that it allows, or "
                "--cloud-config FILE (`cloudgraft certs init` makes a client, `cloudgraft certs client` another one)"
            )
        if not found.has_tls and (self.cert or self.key or self.cacert):
            raise click.UsageError(f"the server of {path} has no TLS: --cert, --key and --cacert do not go with it")
        return self._at(found.address)

    def _at(self, address: str) -> CloudConfig:
        if self.key and not self.cert:
            raise click.UsageError("--key needs --cert, the certificate that belongs to it")
        return CloudConfig(
            address=Address.parse(address),
            key=self.key,
            cert=self.cert,
            cacert=self.cacert,
            # In a cloud-config a cacert alone would mean plain text, which a user who gives one does not expect.
            tls=bool(self.cacert) and not self.cert,
        )


def make_call(
    rpc: str,
    data: str,
    where: Where,
    *,
    timeout: timedelta | None,
    wait: timedelta | None,
    verbosity: int,
    output: str,
) -> None:
    """Makes one call, and prints the answer or why it failed. ``wait`` is the time for a server to become ready."""
    with _logging(verbosity):
        chosen, request = _request(rpc, data)
        if wait is not None:
            wait_until_ready(lambda: _connection(where, timeout), wait)
        answer = _make(_connection(where, timeout), chosen, request)
        _print_answer(chosen, answer, output)


def print_calls(output: str) -> None:
    """Prints all calls, with an example of each."""
    if output == "json":
        calls = [
            {"name": name, "meaning": entry.meaning, "example": entry.example} for name, entry in CATALOGUE.items()
        ]
        click.echo(json.dumps(calls, indent=2))
        return
    print_table(["CALL", "WHAT IT IS FOR"], [[name, entry.meaning] for name, entry in CATALOGUE.items()])
    click.echo(
        "Examples (beside ./cloudgraft.yaml; else add --config FILE, --address HOST:PORT or --cloud-config FILE):"
    )
    for name in CATALOGUE:
        click.echo(f"  {_example(name)}")


def _example(name: str) -> str:
    data = CATALOGUE[name].example
    return f"cloudgraft call {name}" + (f" --data {shlex.quote(json.dumps(data))}" if data else "")


def _request(name: str, data: str) -> tuple[Rpc, Message]:
    try:
        rpc = find_rpc(name)
    except InvalidArgumentError as error:
        raise click.UsageError(clean(error.message)) from error
    try:
        return rpc, build_request(rpc, _text(data))
    except InvalidArgumentError as error:
        raise click.UsageError(f"--data: {clean(error.message)}\nExample: {_example(rpc.name)}") from error


def _text(data: str) -> str:
    """The JSON itself, from the option, a file or standard input."""
    try:
        if data == "-":
            return sys.stdin.read()
        return Path(data[1:]).read_text(encoding="utf-8") if data.startswith("@") else data
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"cannot read {data.removeprefix('@')}: {error}") from error


def _connection(where: Where, timeout: timedelta | None) -> Connection:
    try:
        config = where.resolve()
        return Connection(config if timeout is None else config.with_timeout(timeout))
    except CloudgraftError as error:
        fail(error.message)


def wait_until_ready(connect: Callable[[], Connection], wait: timedelta) -> None:
    """Asks for the node groups until the server answers something else than UNAVAILABLE, or time is up.

    That is a read, so that it can be repeated. Each connection is a new one: an old one waits to reconnect.
    """

    async def is_away() -> bool:
        async with connect() as connection:
            try:
                await connection.call(find_rpc("NodeGroups"), build_request(find_rpc("NodeGroups"), "{}"))
            except (UnavailableError, DeadlineError):
                return True
            except CloudgraftError:
                return False  # it answers; what comes next shows what is wrong
            return False

    wait_while(is_away, wait)


def _make(connection: Connection, rpc: Rpc, request: Message) -> Message:
    async def call() -> Message:
        async with connection:
            return await connection.call(rpc, request)

    try:
        with working("waiting for the server"):
            return asyncio.run(call())
    except CloudgraftError as error:
        status = status_of(error)
        hint = _hint(status, connection.config, has_answered=is_answer(error))
        fail(f"{rpc.name} failed: {status.name}: {error.message}", hint=hint)


def _print_answer(rpc: Rpc, answer: Message, output: str) -> None:
    try:
        if output == "json":
            click.echo(to_json(answer))
        else:
            to_people(answer)
        for note in notes(answer):
            click.echo(f"note: {note}", err=True)
    except InvalidArgumentError as error:
        fail(f"{rpc.name} answered something that cannot be read: {error.message}", hint=_HINTS[StatusCode.INTERNAL])


def _hint(status: StatusCode, config: CloudConfig, *, has_answered: bool) -> str:
    if status is not StatusCode.UNAVAILABLE:
        return _HINTS.get(status, "")
    if has_answered:
        return "the server runs and answered; `cloudgraft status` and `cloudgraft doctor` say more about it"
    if not config.is_encrypted:
        return (
            f"is the server running at {config.address}? If it speaks TLS, give --cert, --key and --cacert, or a "
            "--cloud-config that has them"
        )
    return (
        f"is the server running at {config.address}, does it speak TLS, is its certificate signed by the cacert and "
        f"made for {config.address.host!r}, and does it accept this client's certificate? `cloudgraft certs show` helps"
    )


@contextlib.contextmanager
def _logging(verbosity: int) -> Iterator[None]:
    """Shows the client's log on standard error while the command runs.

    Without -v it shows only messages about the configuration; the command itself reports a failed call.
    """
    log, handler = logging.getLogger("cloudgraft.client"), _EchoHandler()
    handler.addFilter(lambda record: verbosity > 0 or not hasattr(record, "rpc"))
    before = log.level
    log.setLevel(logging.DEBUG if verbosity >= 5 else logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {clean(record.getMessage())}", err=True)
