"""`cloudgraft certs`: makes, renews and checks the certificates of the autoscaler and cloudgraft."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Column, Table

from cloudgraft.certs.defaults import DEFAULT_CLIENT, DEFAULT_HOSTS
from cloudgraft.cli.certs_secrets import command as secrets_command
from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import examples, print_json

if TYPE_CHECKING:
    from cloudgraft.certs.authority import Bundle, What
    from cloudgraft.certs.inspect import CertificateInfo, Report

_PORT = 8086
_directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
_days = click.option("--days", default=365, show_default=True, help="How long server and client certificates hold.")
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or programs.",
)


def _example(*commands: str) -> str:
    return examples(*(f"certs {command}" for command in commands), title="Example")


@click.group(
    "certs",
    cls=Commands,
    epilog=_example(
        "init certs --host cloudgraft.kube-system.svc",
        "show certs --address cloudgraft.kube-system.svc:8086",
        "renew certs",
    ),
)
def command() -> None:
    """Make, renew and check the certificates for mutual TLS.

    The autoscaler speaks TLS as soon as its cloud-config has a `cert`; then it needs key, certificate and authority,
    and the host of its `address` must be among the names of the server's certificate.
    """


@command.command(
    "init", epilog=_example("init certs", "init certs --host cloudgraft.kube-system.svc --host 192.0.2.10 --days 90")
)
@_directory
@click.option("--host", "hosts", multiple=True, help="A name or address under which the server is reached. Repeatable.")
@click.option("--client-name", default=DEFAULT_CLIENT, show_default=True, help="The client's name, for allowedClients.")
@_days
@click.option("--ca-days", default=3650, show_default=True, help="How long the authority holds.")
@_output
def _init(directory: Path, hosts: tuple[str, ...], client_name: str, days: int, ca_days: int, output: str) -> None:
    """Make an authority, a server certificate and a client certificate in DIRECTORY.

    localhost, 127.0.0.1 and ::1 are always among the server's names. Nothing that exists is overwritten. Then prints
    what to write into cloudgraft.yaml and into the autoscaler's cloud-config.
    """
    import yaml

    from cloudgraft.certs.authority import create_bundle
    from cloudgraft.certs.names import parse_client_name
    from cloudgraft.certs.pem import load_certificate

    bundle = create_bundle(
        directory, hosts=[*hosts, *DEFAULT_HOSTS], client_name=client_name, days=days, ca_days=ca_days
    )
    public = not set(hosts) <= set(DEFAULT_HOSTS)
    server = {"server": _server_section(bundle, parse_client_name(client_name), public=public)}
    cloud_config = _cloud_config(bundle, hosts)
    flags = ["--cloud-provider=externalgrpc", "--cloud-config=cloud-config.yaml"]
    if output == "json":
        print_json({"directory": str(directory), **server, "cloudConfig": cloud_config, "autoscalerFlags": flags})
        return
    end = load_certificate(bundle.server_cert).not_valid_after_utc
    click.echo(
        f"Made ca, server and client (.crt and .key) in {directory}; server and client hold until {end:%Y-%m-%d}."
    )
    click.echo("Keep ca.key safe and elsewhere: only renewing needs it.\n")
    click.echo(f"# cloudgraft.yaml\n{yaml.safe_dump(server, sort_keys=False)}")
    click.echo(f"# cloud-config.yaml, for the autoscaler\n{yaml.safe_dump(cloud_config, sort_keys=False)}")
    click.echo(f"# flags of the autoscaler\n{' '.join(flags)}")


def _server_section(bundle: Bundle, client_name: str, *, public: bool) -> dict[str, object]:
    return {
        "listen": f"{'0.0.0.0' if public else '127.0.0.1'}:{_PORT}",  # noqa: S104 - behind mutual TLS
        "tls": {
            "cert": str(bundle.server_cert.resolve()),
            "key": str(bundle.server_key.resolve()),
            "clientCA": str(bundle.ca_cert.resolve()),
            "allowedClients": [client_name],
        },
    }


def _cloud_config(bundle: Bundle, hosts: tuple[str, ...]) -> dict[str, str]:
    from cloudgraft.certs.names import join_host_port

    host = next((host.strip("[]") for host in hosts if not host.startswith("*")), DEFAULT_HOSTS[0])
    return {
        "address": join_host_port(host, _PORT),
        "key": str(bundle.client_key.resolve()),
        "cert": str(bundle.client_cert.resolve()),
        "cacert": str(bundle.ca_cert.resolve()),
    }


@command.command("client", epilog=_example("client certs ops-laptop --days 30"))
@_directory
@click.argument("name")
@_days
@_output
def _client(directory: Path, name: str, days: int, output: str) -> None:
    """Make a certificate for one more client, in DIRECTORY/NAME.crt and DIRECTORY/NAME.key.

    Put NAME into `allowedClients` of cloudgraft.yaml as well.
    """
    from cloudgraft.certs.authority import Bundle, issue_client

    certificate, key = issue_client(directory, name, days=days)
    if output == "json":
        print_json({"cert": str(certificate), "key": str(key), "cacert": str(Bundle.at(directory).ca_cert)})
        return
    click.echo(f"Made {certificate} and {key}. Add {certificate.stem} to allowedClients in cloudgraft.yaml.")


@command.command("renew", epilog=_example("renew certs", "renew certs --what server --host cloudgraft.example.org"))
@_directory
@click.option(
    "--what",
    type=click.Choice(["server", "client", "all"]),
    default="all",
    show_default=True,
    help="Which certificates; `client` is every client of this authority.",
)
@click.option("--host", "hosts", multiple=True, help="One more name or address for the server. Repeatable.")
@_days
@click.option("--keep-keys", is_flag=True, help="Replace the certificates only.")
@_output
def _renew(directory: Path, what: What, hosts: tuple[str, ...], days: int, *, keep_keys: bool, output: str) -> None:
    """Issue server and clients again for the same names, by the same authority.

    A running server reads the new files by itself and drops no connection. The authority is kept, so nobody else has
    to change anything; when it ends sooner than the new certificates would, they are cut to its end with a warning.
    """
    from cloudgraft.certs.authority import renew

    renewal = renew(directory, what=what, days=days, add_hosts=hosts, keep_keys=keep_keys)
    for warning in renewal.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if output == "json":
        renewed = [str(path) for path in renewal.renewed]
        print_json({"renewed": renewed, "notAfter": _iso(renewal.not_after), "warnings": list(renewal.warnings)})
        return
    for path in renewal.renewed:
        click.echo(f"Renewed {path}; it holds until {renewal.not_after:%Y-%m-%d}.")


@command.command(
    "show",
    epilog=_example(
        "show certs", "show certs --address cloudgraft.kube-system.svc:8086", "show certs/server.crt -o json"
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--address", help="The address of the autoscaler's cloud-config; its host must be among the names.")
@_output
@click.pass_context
def _show(context: click.Context, path: Path, address: str | None, output: str) -> None:
    """Show the certificates in PATH, a directory or one file: names, end, and what is wrong.

    Exit code 1 when something is expired or wrong, 0 otherwise; what ends within 30 days is only a warning.
    """
    from cloudgraft.certs.inspect import inspect_path

    report, now = inspect_path(path, address=address), datetime.now(UTC)
    if output == "json":
        print_json(_as_json(report, now))
    else:
        _print_report(report, now)
    if not report.ok:
        context.exit(1)


def _print_report(report: Report, now: datetime) -> None:
    table = Table("file", "for", Column("names", overflow="fold"), "until", "days left")
    for info in report.certificates:
        names = "\n".join(info.names) or info.common_name
        table.add_row(info.file.name, info.purpose, names, f"{info.not_after:%Y-%m-%d}", str(info.days_left(now)))
    Console().print(table)
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.file}: {finding.message}\n  fix: {finding.fix}")
    click.echo(_go_client(report))


def _go_client(report: Report) -> str:
    """The name that the autoscaler expects in the server's certificate, and whether the certificate has it."""
    servers = [info for info in report.certificates if info.purpose in {"server", "any"}]
    if report.server_name is None:
        names = ", ".join(dict.fromkeys(name for info in servers for name in info.names))
        rule = "The Go client looks for the host of `address` in its cloud-config among the names, not at the CN."
        return f"{rule} It can use: {names}" if names else rule
    found = [str(info.file) for info in servers if info.accepts(report.server_name)]
    result = f"found in {', '.join(found)}" if found else "not found"
    return f"The Go client will look for {report.server_name!r}: {result}."


def _as_json(report: Report, now: datetime) -> dict[str, object]:
    return {
        "ok": report.ok,
        "serverName": report.server_name,
        "certificates": [_certificate_json(info, report, now) for info in report.certificates],
        "findings": [{**asdict(finding), "file": str(finding.file)} for finding in report.findings],
    }


def _certificate_json(info: CertificateInfo, report: Report, now: datetime) -> dict[str, object]:
    return {
        "file": str(info.file),
        "for": info.purpose,
        "commonName": info.common_name,
        "issuer": info.issuer,
        "dnsNames": list(info.dns_names),
        "ipAddresses": [str(address) for address in info.ip_addresses],
        "notBefore": _iso(info.not_before),
        "notAfter": _iso(info.not_after),
        "daysLeft": info.days_left(now),
        "sha256": info.fingerprint,
        "acceptedForServerName": None if report.server_name is None else info.accepts(report.server_name),
    }


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


command.add_command(secrets_command)
