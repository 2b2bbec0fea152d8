"""`cloudgraft accept-loss`: accepts that many machines are gone, or broken, at once."""

from __future__ import annotations

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.pause import subject
from cloudgraft.cli.terminal import clean, output_option, print_json


@click.command(
    "accept-loss",
    epilog="\b\nExamples:\n  cloudgraft accept-loss --cloud lab\n  cloudgraft accept-loss small",
)
@click.argument("group", required=False, shell_complete=names.groups)
@click.option(
    "--cloud",
    default="",
    metavar="CLOUD",
    shell_complete=names.clouds,
    help="Accept that machines are missing in this cloud.",
)
@admin_client.options
@output_option
def command(group: str | None, cloud: str, admin: Admin, output: str) -> None:
    """Accept that many machines are gone from a CLOUD, or broken in a GROUP.

    When a list misses many machines at once, or a group has many broken ones, the server holds that back: the cloud is
    more likely wrong. `cloudgraft status` shows what is held back. Check in the cloud itself before you accept it: then
    missing machines count as gone, and broken ones are replaced step by step.
    """
    result = admin.call("AcceptLoss", subject(group, cloud))
    if output == "json":
        print_json(result)
        return
    what = clean(f"{result['scope']} {result['name']}")
    count = result["machines"]
    click.echo(f"Accepted: {count} machines of {what}." if count else f"Nothing of {what} is held back.")
