"""`cloudgraft test-driver`: tests the driver of one cloud of a configuration file against what the engine relies on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cloudgraft.cli import names
from cloudgraft.cli.terminal import config_option, examples
from cloudgraft.sdk.errors import InvalidArgumentError


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The values of --only: rules in upper case, checks by their names."""
    if not given:
        return ()
    from cloudgraft.conformance.driver.rules import DRIVER_RULES
    from cloudgraft.conformance.driver.run import chosen

    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    wanted = [word.upper() if word.upper() in DRIVER_RULES else word for word in words]
    try:
        chosen(wanted)
    except InvalidArgumentError as error:
        raise click.BadParameter(f"{error.message}; docs/reference/driver-contract.md lists them") from error
    return tuple(dict.fromkeys(wanted))


@click.command(
    "test-driver",
    epilog=examples(
        "test-driver lab --quick",
        "test-driver lab -c cloudgraft.yaml --group lab-small",
        "test-driver lab --only D13,D21 --yes",
        "test-driver lab --machines 5 --yes --junit driver.xml -o json",
    ),
)
@click.argument("name", shell_complete=names.clouds_of_the_file)
@config_option("The configuration file that has the cloud NAME.")
@click.option("--group", default="", help="The node group whose `machine` section is created, if there are several.")
@click.option("--quick", is_flag=True, help="Only the most important checks: less than a minute on most clouds.")
@click.option("--only", multiple=True, callback=_names, metavar="D13,D21", help="Only these rules or checks.")
@click.option(
    "--machines",
    type=click.IntRange(4, 100),
    metavar="N",
    help="The most machines at the same time. Default: as many as all checks need.",
)
@click.option(
    "--proxy-option",
    default="",
    metavar="KEY",
    help="The option with the cloud's plain HTTP address, where a proxy of the kit loses answers. By default the only "
    "one on loopback, if there is one.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Needed without a terminal, unless the cloud is simulated.")
@click.option("--junit", default="", metavar="FILE", help="Write the results as JUnit XML too, for CI.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    *,
    name: str,
    path: Path,
    group: str,
    quick: bool,
    only: Sequence[str],
    machines: int | None,
    proxy_option: str,
    yes: bool,
    junit: str,
    output: str,
) -> None:
    """Test the driver of the cloud NAME against what the engine relies on (docs/reference/driver-contract.md).

    It builds the driver from the configuration file as `serve` does, creates machines as the node group says, and
    deletes them again. It makes REAL MACHINES, says before how many, and asks. It opens no journal and needs no
    server, no autoscaler and no cluster. Machines of others, and those of a running server, are not touched.

    Each failure comes with its rule, the calls, why it matters and how to fix it. Ctrl-C deletes what was made, too.

    A check that the cloud does not let happen, for want of room or because it does not answer, is inconclusive: it
    neither passed nor failed, and says what it needs.

    Exit code 0: all is well. 1: a rule is broken, or could not be judged, or machines were left behind. 2: wrong usage,
    or the file does not allow the test. 3: no rule is broken, but some checks were inconclusive.
    """
    if quick and only:
        raise click.UsageError("--quick is a choice of checks, and so is --only: give one of them")
    from cloudgraft.cli.report_output import print_report, write_junit
    from cloudgraft.cli.test_driver_run import Wanted, run_checks

    wanted = Wanted(cloud=name, group=group, only=only, quick=quick, machines=machines, proxy_option=proxy_option)
    report = run_checks(context, path, wanted, yes=yes)
    print_report(report, output)
    write_junit(report, junit)
    context.exit(report.exit_code)
