"""`cloudgraft resume`: ends a pause."""

from __future__ import annotations

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.pause import subject
from cloudgraft.cli.terminal import clean, output_option, print_json


@click.command("resume", epilog="\b\nExamples:\n  cloudgraft resume small\n  cloudgraft resume --cloud lab")
@click.argument("group", required=False, shell_complete=names.groups)
@click.option("--cloud", default="", metavar="CLOUD", shell_complete=names.clouds, help="Resume this cloud instead.")
@admin_client.options
@output_option
def command(group: str | None, cloud: str, admin: Admin, output: str) -> None:
    """Resume a node group or a cloud that was paused."""
    result = admin.call("Resume", subject(group, cloud))
    if output == "json":
        print_json(result)
        return
    what = clean(f"{result['scope']} {result['name']}")
    click.echo(f"Resumed {what}." if result["changed"] else f"{what.capitalize()} was not paused.")
