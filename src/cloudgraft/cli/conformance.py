"""`cloudgraft conformance`: tests any externalgrpc server, in any language, against the autoscaler's contract."""

from __future__ import annotations

from datetime import timedelta

import click

from cloudgraft.cli.terminal import examples
from cloudgraft.cli.waiting import WaitingCommand, wait_option
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The values of --only: rules in upper case, checks by their names."""
    if not given:
        return ()
    from cloudgraft.conformance.rules import RULES
    from cloudgraft.conformance.run import selected

    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    names = [word.upper() if word.upper() in RULES else word for word in words]
    try:
        selected(names)
    except InvalidArgumentError as error:
        raise click.BadParameter(f"{error.message}; --list shows them") from error
    return tuple(dict.fromkeys(names))


def _release(_context: click.Context, _option: click.Parameter, text: str) -> str:
    from cloudgraft.conformance.releases import NEWEST, Release

    if not text:
        return str(NEWEST)
    try:
        Release.parse(text)
    except CloudgraftError as error:
        raise click.BadParameter(error.message) from error
    return text.strip().removeprefix("v")


@click.command(
    "conformance",
    cls=WaitingCommand,
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
    "--release", default="", callback=_release, show_default="the newest", help="Call as this autoscaler does."
)
@wait_option("begin")
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
    wait: timedelta | None,
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
    from cloudgraft.cli import conformance_run as run
    from cloudgraft.cli.call_run import wait_until_ready
    from cloudgraft.cli.report_output import print_report, write_junit
    from cloudgraft.client.connection import Connection
    from cloudgraft.conformance.calls import expected_failures

    if list_only:
        run.print_rules(only, output)
        return
    config = run.config_of(kit, address=address, cloud_config=cloud_config, group=group, allow_existing=allow_existing)
    session = run.session(config, only, release)
    if wait is not None:
        with expected_failures():
            wait_until_ready(lambda: Connection(config.connection()), wait)
    report = run.judge(context, session)
    print_report(report, output)
    write_junit(report, junit)
    context.exit(report.exit_code)
