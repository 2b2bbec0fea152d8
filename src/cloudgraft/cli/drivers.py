"""`cloudgraft drivers`: lists installed drivers and providers, and describes one of them."""

from __future__ import annotations

import click

from cloudgraft.cli import names
from cloudgraft.cli.terminal import examples, output_option


@click.command("drivers", epilog=examples("drivers", "drivers hetzner", "drivers -o json"))
@click.argument("name", required=False, shell_complete=names.drivers)
@output_option
def command(name: str | None, output: str) -> None:
    """List the drivers and providers that installed Python packages offer, or describe the one called NAME.

    One that cannot be used is listed with the reason, and does not affect the others. Plugins, which are separate
    programs, need no installation and are not listed: a configuration names their command.
    """
    from cloudgraft.cli.drivers_run import print_list, print_one

    if name is not None:
        print_one(name, output)
    else:
        print_list(output)
