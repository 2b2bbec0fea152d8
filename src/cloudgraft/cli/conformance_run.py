"""Runs the conformance kit for `cloudgraft conformance`, and prints the rules."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console

from cloudgraft.cli.report_output import print_view
from cloudgraft.cli.terminal import clean, fail
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.render.table import progress_line, rule_rows, rules_json, rules_view
from cloudgraft.conformance.report import Report
from cloudgraft.conformance.rules import RULES
from cloudgraft.conformance.run import Session, selected
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError
from cloudgraft.server.signals import run_or_interrupt

_USAGE: Final = 2  # exit code for wrong usage


def config_of(kit: str, *, address: str, cloud_config: str, group: str, allow_existing: bool) -> KitConfig:
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


def session(config: KitConfig, only: Sequence[str], release: str) -> Session:
    """A run that shows each check on standard error when it has ended."""
    if only and not selected(only):
        reasons = "; ".join(f"{name}: {RULES[name].unobservable}" for name in only)
        raise click.UsageError(f"nothing from outside can see this. {reasons}")
    shown = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        return Session(config, only=only, release=release, progress=lambda result: shown.print(progress_line(result)))
    except CloudgraftError as error:
        fail(error.message, code=_USAGE)


def judge(context: click.Context, session: Session) -> Report:
    """Runs the checks; Ctrl-C deletes what they made, and ends the command."""
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


def print_rules(only: Sequence[str], output: str) -> None:
    """Prints the rules with the checks that look at them."""
    table = rule_rows(CHECKS, only)
    if output == "html":
        raise click.UsageError("--list is shown as a table or as json")
    if output == "json":
        click.echo(rules_json(table))
    else:
        print_view(rules_view(table))
