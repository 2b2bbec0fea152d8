"""`cloudgraft doctor`: finds problems of server, autoscaler and cluster, and says how to fix them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from cloudgraft.cli import admin_client
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.progress import working
from cloudgraft.cli.server_file import DEFAULT_FILE
from cloudgraft.cli.terminal import console, output_option, print_json, text
from cloudgraft.doctor.findings import Finding, Severity, exit_code
from cloudgraft.sdk.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cloudgraft.admin.client import AdminClient
    from cloudgraft.doctor.gather import Sources
    from cloudgraft.doctor.inputs import Inputs

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_EXAMPLES = """\b
Examples:
  cloudgraft doctor
  cloudgraft doctor --kubeconfig ~/.kube/config --autoscaler kube-system/cluster-autoscaler
  cloudgraft doctor -c cloudgraft.yaml --cloud-config cloud-config.yaml -o json
\b
Exit codes:
  0 nothing, or notes only; 1 warnings; 2 wrong usage; 3 errors
"""
_file: Final = click.Path(path_type=Path, dir_okay=False)


def _autoscaler(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, str] | None:
    if not value:
        return None
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter("write it as NAMESPACE/NAME, such as kube-system/cluster-autoscaler")
    return namespace, name


@click.command("doctor", epilog=_EXAMPLES)
@click.option(
    "--kubeconfig", type=_file, metavar="FILE", help="The cluster to look at. Default: what the configuration names."
)
@click.option(
    "--autoscaler",
    default="",
    callback=_autoscaler,
    metavar="NAMESPACE/NAME",
    help="The autoscaler's Deployment. Default: every one with --cloud-provider=externalgrpc.",
)
@click.option(
    "--cloud-config", type=_file, metavar="FILE", help="The autoscaler's cloud-config, to try its calls from here."
)
@admin_client.options
@output_option
def command(
    kubeconfig: Path | None, autoscaler: tuple[str, str] | None, cloud_config: Path | None, admin: Admin, output: str
) -> None:
    """Find what is wrong: configuration, running server, certificates, autoscaler, nodes.

    Changes nothing. Parts that cannot be reached are reported and skipped. Each finding says what is wrong, why it
    matters, and the command or line that fixes it.
    """
    from cloudgraft.app.check import problems_of
    from cloudgraft.doctor.checks import examine
    from cloudgraft.doctor.gather import Sources

    config = admin.config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    sources = Sources(
        config=config,
        check=problems_of,
        kubeconfig=kubeconfig,
        autoscaler=autoscaler,
        cloud_config=cloud_config,
        admin=(lambda: _connected(admin)) if admin.address or config else None,
    )
    findings = examine(_looked(sources))
    if output == "json":
        counts = _counts(findings)
        print_json({"findings": [finding.as_json() for finding in findings], **counts})
    else:
        _print(findings)
    raise SystemExit(exit_code(findings))


def _looked(sources: Sources) -> Inputs:
    """Collects the input, and shows the progress on a terminal."""
    from cloudgraft.doctor.gather import gather

    with working("looking") as show:
        return asyncio.run(gather(sources, tell=lambda what: show(f"looking at {what}")))


def _connected(admin: Admin) -> AdminClient:
    """An address takes precedence over the file's; the file is still read for everything else."""
    try:
        return (replace(admin, config=None) if admin.address else admin).connect()
    except click.UsageError as error:
        raise InvalidArgumentError(error.format_message()) from error


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    counted = Counter(finding.entry.severity for finding in findings)
    return {f"{severity.value}s": counted[severity] for severity in Severity}


def _print(findings: Sequence[Finding]) -> None:
    screen = console()
    for finding in findings:
        severity = finding.entry.severity
        head = Text(f"{severity.value.upper():8}", style=_STYLES[severity])
        screen.print(head, text(f"{finding.entry.id}: {finding.entry.title}", "bold"))
        for name, value in (
            ("where", finding.where),
            ("what", finding.what),
            ("why", finding.entry.why),
            ("fix", finding.fix),
        ):
            screen.print(Text(f"  {name:6}"), text(value))
        screen.print()
    counts = _counts(findings)
    summary = ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items() if count)
    screen.print(text(f"{summary}." if summary else "Nothing is wrong, as far as could be seen."))
