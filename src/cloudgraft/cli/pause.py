"""`cloudgraft pause`: stops new actions in a group or a cloud, until it is resumed."""

from __future__ import annotations

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import clean, output_option, print_json


def subject(group: str | None, cloud: str) -> dict[str, object]:
    """The request that names a group or a cloud; a usage error for none or two."""
    if bool(group) == bool(cloud):
        raise click.UsageError("say either a GROUP or --cloud CLOUD")
    return {"group": group} if group else {"cloud": cloud}


@click.command(
    "pause",
    epilog="\b\nExamples:\n  cloudgraft pause small --reason 'the invoice of May'\n  cloudgraft pause --cloud lab",
)
@click.argument("group", required=False, shell_complete=names.groups)
@click.option(
    "--cloud", default="", metavar="CLOUD", shell_complete=names.clouds, help="Pause all groups of this cloud instead."
)
@click.option("--reason", default="", help="Shown in status, in explain, and to the autoscaler.")
@admin_client.options
@output_option
def command(group: str | None, cloud: str, reason: str, admin: Admin, output: str) -> None:
    """Pause a node group or a whole cloud: nothing is created or deleted there.

    The autoscaler still gets truthful answers. Machines that it requests meanwhile fail at once with this reason, so
    that it tries other groups; machines that it deletes are deleted after the group is resumed. A pause survives a
    restart.
    """
    result = admin.call("Pause", {**subject(group, cloud), "reason": reason})
    if output == "json":
        print_json(result)
        return
    what = clean(f"{result['scope']} {result['name']}")
    end = clean(f"cloudgraft resume {'--cloud ' if cloud else ''}{result['name']}")
    click.echo(f"Paused {what}. `{end}` ends it." if result["changed"] else f"{what.capitalize()} was paused already.")
