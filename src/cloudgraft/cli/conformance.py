"""`cloudgraft conformance`: tests any externalgrpc server, in any language, against the autoscaler's contract."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console

from cloudgraft.cli.report_output import print_report, print_view, tolerate_any_text, write_junit
from cloudgraft.cli.terminal import clean, examples, fail
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.releases import NEWEST, Release
from cloudgraft.conformance.render.table import progress_line, rule_rows, rules_json, rules_view
from cloudgraft.conformance.report import Report
from cloudgraft.conformance.rules import RULES
from cloudgraft.conformance.run import Session, selected
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError
from cloudgraft.server.signals import run_or_interrupt

_USAGE: Final = 2  # exit code for wrong usage


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The values of --only: rules in upper case, checks by their names."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    names = [word.upper() if word.upper() in RULES else word for word in words]
    try:
        selected(names)
    except InvalidArgumentError as error:
        raise click.BadParameter(f"{error.message}; --list shows them") from error
    return tuple(dict.fromkeys(names))


def _release(_context: click.Context, _option: click.Parameter, text: str) -> str:
    try:
        Release.parse(text)
    except CloudgraftError as error:
        raise click.BadParameter(error.message) from error
    return text.strip().removeprefix("v")


@click.command(
    "conformance",
    epilog=examples(
        "conformance --address 127.0.0.1:8086",
        "conformance --cloud-config cloud-config.yaml --group small --release 1.29",
        "conformance --config kit.yaml --junit conformance.xml",
        "conformance --address 127.0.0.1:8086 --only R49,T6 -o json",
        "conformance --config kit.yaml -o html > report.html",
        "conformance --list",
    ),
)
@click.option("--address", default="", metavar="HOST:PORT", help="The server: host:port or unix:/path, without TLS.")
@click.option("--cloud-config", default="", metavar="FILE", help="The autoscaler's own cloud-config file.")
@click.option("--config", "kit", default="", metavar="FILE", help="The kit's configuration: server, group, commands.")
@click.option("--group", default="", help="The node group to work with; else the first that is empty and has room.")
@click.option("--allow-existing", is_flag=True, help="Work with a group that has machines; they are not touched.")
@click.option("--only", multiple=True, callback=_names, metavar="R49,T6", help="Only these rules or checks.")
@click.option(
    "--release", default=str(NEWEST), callback=_release, show_default=True, help="Call as this autoscaler does."
)
@click.option("--junit", default="", metavar="FILE", help="Write the results as JUnit XML too, for CI.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.option("--list", "list_only", is_flag=True, help="Show all rules with the checks that look at them, and stop.")
@click.pass_context
def command(
    context: click.Context,
    *,
    address: str,
    cloud_config: str,
    kit: str,
    group: str,
    allow_existing: bool,
    only: tuple[str, ...],
    release: str,
    junit: str,
    output: str,
    list_only: bool,
) -> None:
    """Judge any externalgrpc server by what the autoscaler needs of it.

    The kit calls the server as the autoscaler would, makes a few machines in one node group, deletes them again, and
    says which rules hold. Each failure comes with its rule, what was sent, what came back, why it matters and how to
    fix it. It makes REAL MACHINES: give it a group for tests. A group that has machines already is left alone unless
    --allow-existing is given. Ctrl-C deletes what was made, too.

    Rules have levels. must: the autoscaler would crash or stop, or machines would be lost or bought twice. should: it
    would work badly. note: worth knowing. What needs your help (a slow cloud, a stock-out, a restart) is checked when
    the file of --config has the commands for it.

    Exit code 0: all is well. 1: a must or a should is broken, or could not be judged. 2: wrong usage, or no group to
    work with.
    """
    tolerate_any_text()
    if list_only:
        _print_rules(only, output)
        return
    config = _config(kit, address=address, cloud_config=cloud_config, group=group, allow_existing=allow_existing)
    report = _judge(context, _session(config, only, release))
    print_report(report, output)
    write_junit(report, junit)
    context.exit(report.exit_code)


def _config(kit: str, *, address: str, cloud_config: str, group: str, allow_existing: bool) -> KitConfig:
    """The file, overridden by the options. The options give the whole address of the server, or none of it."""
    try:
        config = KitConfig.load(kit) if kit else KitConfig()
    except CloudgraftError as error:
        fail(error.message, code=_USAGE)
    given: dict[str, object] = {}
    if address or cloud_config:
        given |= {"address": address, "cloud_config": cloud_config}
    if group:
        given["group"] = group
    if allow_existing:
        given["allow_existing"] = True
    config = config.model_copy(update=given)
    if bool(config.address) == bool(config.cloud_config):
        raise click.UsageError("say where the server is, with one of --address, --cloud-config and --config")
    return config


def _session(config: KitConfig, only: Sequence[str], release: str) -> Session:
    """A run that shows each check on standard error when it has ended."""
    if only and not selected(only):
        reasons = "; ".join(f"{name}: {RULES[name].unobservable}" for name in only)
        raise click.UsageError(f"nothing from outside can see this. {reasons}")
    shown = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        return Session(config, only=only, release=release, progress=lambda result: shown.print(progress_line(result)))
    except CloudgraftError as error:
        fail(error.message, code=_USAGE)


def _judge(context: click.Context, session: Session) -> Report:
    try:
        ended = asyncio.run(
            run_or_interrupt(
                session.run(),
                on_first=lambda: click.echo("interrupted: deleting what the kit made ...", err=True),
                only_first=True,  # a second Ctrl-C would leave machines behind
            )
        )
    except (InvalidArgumentError, PreconditionError) as error:
        fail(error.message, code=_USAGE)
    except CloudgraftError as error:
        fail(error.message)
    report = session.report
    if isinstance(ended, signal.Signals):
        left = f"left behind: {', '.join(report.left_behind)}" if report.left_behind else "what it made is deleted"
        click.echo(f"interrupted after {len(report.results)} checks; {clean(left)}", err=True)
        context.exit(128 + ended)
    return report


def _print_rules(only: Sequence[str], output: str) -> None:
    table = rule_rows(CHECKS, only)
    if output == "html":
        raise click.UsageError("--list is shown as a table or as json")
    if output == "json":
        click.echo(rules_json(table))
    else:
        print_view(rules_view(table))
