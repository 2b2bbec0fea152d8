"""`cloudgraft drivers`: lists installed drivers and providers, and why one cannot be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Column, Table

from cloudgraft.cli.terminal import examples, output_option

if TYPE_CHECKING:
    from cloudgraft.plugins.registry import Listing


@click.command("drivers", epilog=examples("drivers", "drivers -o json", title="Example"))
@output_option
def command(output: str) -> None:
    """List the drivers and providers that installed Python packages offer.

    One that cannot be used is listed with the reason, and does not affect the others. Plugins, which are separate
    programs, need no installation and are not listed: a configuration names their command.
    """
    from cloudgraft.plugins.registry import list_all

    found = list_all()
    if output == "json":
        click.echo(json.dumps([_as_json(listing) for listing in found], indent=2))
    else:
        _print(found)


def _print(found: list[Listing]) -> None:
    table = Table("kind", "name", "package", Column("what it is", overflow="fold"), Column("options", overflow="fold"))
    for listing in found:
        about = "[red]cannot be used[/red]" if listing.error else _plain(listing.summary)
        package = _plain(f"{listing.distribution} {listing.version}".strip())
        options = ", ".join(f"{option.name}*" if option.is_required else option.name for option in listing.options)
        table.add_row(listing.kind.word, _plain(listing.name), package, about, _plain(options))
    Console().print(table)
    for listing in found:
        if listing.error:
            click.echo(listing.error)
    if any(option.is_required for listing in found for option in listing.options):
        click.echo("* must be set")
    click.echo("For another cloud, `cloudgraft new driver NAME` writes a driver to start from.")


def _plain(text: str) -> str:
    """Text that rich does not take for markup."""
    return text.replace("[", r"\[")


def _as_json(listing: Listing) -> dict[str, object]:
    return {
        "kind": listing.kind.word,
        "name": listing.name,
        "target": listing.target,
        "distribution": listing.distribution,
        "version": listing.version,
        "summary": listing.summary,
        "options": [{"name": option.name, "required": option.is_required} for option in listing.options],
        "error": listing.error or None,
    }
