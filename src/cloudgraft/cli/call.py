"""`cloudgraft call`: makes one of the 15 calls, to any server in any language."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from google.protobuf.message import Message

from cloudgraft.cli.call_messages import CATALOGUE, build_request, find_rpc, notes, to_json, to_people
from cloudgraft.cli.terminal import clean, duration, examples, fail, print_table
from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.client.connection import Connection
from cloudgraft.client.errors import is_answer, status_of
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, StatusCode
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
class _Where:
    """The options that select a server; empty where not given."""

    address: str
    cloud_config: str
    url: str
    key: str
    cert: str
    cacert: str

    def config(self) -> CloudConfig:
        """The cloud-config that they describe; a usage error for none or two."""
        if sum(map(bool, (self.address, self.cloud_config, self.url))) != 1:
            raise click.UsageError("say where the server is, with one of --address, --cloud-config and --url")
        if self.cloud_config:
            if self.key or self.cert or self.cacert:
                raise click.UsageError("--key, --cert and --cacert do not go with --cloud-config, which has its own")
            return CloudConfig.load(self.cloud_config)
        if self.url:
            return CloudConfig.from_url(self.url, key=self.key, cert=self.cert, cacert=self.cacert)
        if self.key and not self.cert:
            raise click.UsageError("--key needs --cert, the certificate that belongs to it")
        return CloudConfig(
            address=Address.parse(self.address),
            key=self.key,
            cert=self.cert,
            cacert=self.cacert,
            # In a cloud-config a cacert alone would mean plain text, which a user who gives one does not expect.
            tls=bool(self.cacert) and not self.cert,
        )


@click.command(
    "call",
    epilog=examples(
        "call --list",
        "call NodeGroups --address 127.0.0.1:8086",
        """call NodeGroupNodes --cloud-config cloud-config.yaml --data '{"id": "small"}'""",
        """call NodeGroupTemplateNodeInfo --address 127.0.0.1:8086 --data '{"id": "small"}' -o json""",
        "call Refresh --address provider:8086 --cert tls.crt --key tls.key --cacert ca.crt",
    ),
)
@click.argument("rpc", required=False)
@click.option(
    "--address", default="", metavar="HOST:PORT", help="The server, as in a cloud-config: host:port or unix:/path."
)
@click.option("--cloud-config", default="", metavar="FILE", help="The autoscaler's own cloud-config file.")
@click.option("--url", default="", help="The server as https://host:port (TLS) or http://host:port.")
@click.option("--key", default="", metavar="FILE", help="The client's private key, for mTLS.")
@click.option("--cert", default="", metavar="FILE", help="The client's certificate, for mTLS.")
@click.option("--cacert", default="", metavar="FILE", help="The authority that signed the server's certificate.")
@click.option(
    "--timeout", default="", callback=duration, metavar="DURATION", help="The time limit, such as 500ms or 1m; else 5s."
)
@click.option("--data", default="{}", metavar="JSON", help="The request in protobuf JSON; @FILE, or - for stdin.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbosity", type=click.IntRange(0, 10), default=0, help="1: log errors, 5: log every call.")
@click.option("--list", "list_only", is_flag=True, help="Show all calls with an example of each, and stop.")
def command(
    rpc: str | None,
    *,
    address: str,
    cloud_config: str,
    url: str,
    key: str,
    cert: str,
    cacert: str,
    timeout: timedelta | None,
    data: str,
    output: str,
    verbosity: int,
    list_only: bool,
) -> None:
    """Make one of the 15 calls of the autoscaler's protocol to any server.

    RPC is the name of the call, in upper or lower case. A node template is shown as YAML, lists as tables; -o json
    prints the answer in protobuf JSON.

    The request is sent as the autoscaler would send it: fields that old and new releases name differently are filled
    both, NodeGroupGetOptions gets the autoscaler's flag defaults unless you give others, and prices are for the next
    hour unless you say. PricingPodPrice takes `pod` as a Kubernetes manifest too.
    """
    if list_only or rpc is None:
        _print_calls(output)
        return
    where = _Where(address=address, cloud_config=cloud_config, url=url, key=key, cert=cert, cacert=cacert)
    with _logging(verbosity):
        chosen, request = _request(rpc, data)
        answer = _make(_connection(where, timeout), chosen, request)
        _print_answer(chosen, answer, output)


def _print_calls(output: str) -> None:
    if output == "json":
        calls = [
            {"name": name, "meaning": entry.meaning, "example": entry.example} for name, entry in CATALOGUE.items()
        ]
        click.echo(json.dumps(calls, indent=2))
        return
    print_table(["CALL", "WHAT IT IS FOR"], [[name, entry.meaning] for name, entry in CATALOGUE.items()])
    click.echo("Examples (add --address HOST:PORT, --cloud-config FILE or --url URL):")
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


def _connection(where: _Where, timeout: timedelta | None) -> Connection:
    try:
        config = where.config()
        return Connection(config if timeout is None else config.with_timeout(timeout))
    except CloudgraftError as error:
        fail(error.message)


def _make(connection: Connection, rpc: Rpc, request: Message) -> Message:
    async def call() -> Message:
        async with connection:
            return await connection.call(rpc, request)

    try:
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
