"""`cloudgraft dock`: serves drivers that dial in without an engine, and shows connected drivers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudgraft.cli import admin_client
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.dock_connect import command as connect_command
from cloudgraft.cli.groups import Commands
from cloudgraft.cli.server_file import file_here
from cloudgraft.cli.terminal import (
    ago,
    check_option,
    config_option,
    examples,
    log_options,
    output_option,
    print_json,
    print_table,
)
from cloudgraft.cli.waiting import WaitingCommand
from cloudgraft.sdk.errors import PreconditionError, UnsupportedError

if TYPE_CHECKING:
    from cloudgraft.config import Config

_HEADINGS = ("KIND", "API VERSION", "DRIVER", "PROTOCOL", "WHO", "FOR", "STATE", "IN FLIGHT", "DONE", "LAST ERROR")


@click.group("dock", cls=Commands, invoke_without_command=True)
@config_option("The configuration file, with a section `dock` (docs/reference/configuration.md).", required=False)
@check_option
@log_options
@click.pass_context
def command(
    context: click.Context, path: Path | None, verbosity: int | None, log_format: str | None, *, check: bool
) -> None:
    """Serve drivers that dial in, without an engine, until told to stop.

    Where `cloudgraft serve` runs, none of this is needed: a section `dock` in its file does the same in that process.
    A dock of its own is for an engine that drivers cannot reach; the engine's file then has a cloud with
    `driver: dock` and this one's `address`, and this one's file names the engine in `dock.engines`.

    \b
    The smallest configuration, for a first try:
      cluster: test
      dock:
        classes: {small: {kind: SimMachineClass, apiVersion: sim.example/v1}}

    \b
    Examples:
      cloudgraft dock --config dock.yaml
      cloudgraft dock drivers --config dock.yaml
      cloudgraft dock connect --driver simulated --config driver.yaml

    SIGHUP, and a change of the file, bring other drivers, engines and machine classes into effect.
    """
    if context.invoked_subcommand is not None:
        return
    path = path or file_here()
    import asyncio
    import signal

    from prometheus_client import CollectorRegistry

    from cloudgraft.app import logs
    from cloudgraft.app.dock_alone import check_section, parts, section_of
    from cloudgraft.app.dock_wiring import DockLink
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.app.reload import WatchedFile
    from cloudgraft.app.wiring import DockAlone
    from cloudgraft.config import load
    from cloudgraft.net.connections import ListenerMetrics
    from cloudgraft.server.signals import run_until_signal

    overrides = {"log.level": verbosity, "log.format": log_format}

    def read() -> Config:
        config = load(path, overrides=overrides, find=check_section)
        section_of(config)
        return config

    if not check:
        forbid_memory_dumps()
    file = WatchedFile(path, read)
    config = file.load()
    dock = section_of(config)
    registry = CollectorRegistry()
    listeners = ListenerMetrics(registry)
    link = DockLink(config, dock, for_engines=True, metrics=listeners)
    alone = DockAlone(file, config, link)
    if check:
        found = (f"{len(dock.drivers)} drivers", f"{len(dock.engines)} engines", f"{len(dock.classes)} machine classes")
        click.echo(f"{path}: good ({', '.join(found)})")
        return
    logs.configure(config.log.level, config.log.format)
    signal.signal(signal.SIGHUP, lambda *_: None)  # ignored until the watch handles it
    link.register(registry)
    asyncio.run(run_until_signal(parts(config, alone, registry, listeners)))


@command.command("drivers", cls=WaitingCommand, epilog=examples("dock drivers", "dock drivers -o json"))
@admin_client.options(wait="show them")
@output_option
def drivers(admin: Admin, output: str) -> None:
    """Show the drivers that are connected: since when, which versions, what they work on, and their last error.

    It asks a running `cloudgraft serve` or `cloudgraft dock`, found by its configuration file or by --admin.
    """
    try:
        answer = admin.call("DockDrivers")
    except UnsupportedError:
        raise PreconditionError("this server has no dock: there is no section `dock` in its file") from None
    if output == "json":
        print_json(answer)
        return
    found = answer["drivers"]
    if not found:
        click.echo("No driver is connected.")
        return
    print_table(_HEADINGS, [_row(driver) for driver in found])


def _row(driver: dict[str, Any]) -> list[object]:
    waiting = f" (+{driver['queued']} waiting)" if driver["queued"] else ""
    return [
        driver["kind"],
        driver["apiVersion"],
        f"{driver['name']} {driver['version']}".strip() or "-",
        driver["protocol"],
        driver["identity"],
        ago(driver["connectedSeconds"]),
        driver["state"],
        f"{driver['inFlight']}{waiting}",
        f"{driver['succeeded']} ok, {driver['failed']} failed",
        driver["lastError"] or "-",
    ]


command.add_command(connect_command)
