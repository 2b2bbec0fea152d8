"""`cloudgraft adopt`: adopts the machines of a cluster that already runs."""

from __future__ import annotations

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import output_option, print_result

_EXAMPLES = """\b
Examples:
  cloudgraft adopt small --all-matching worker-
  cloudgraft adopt small i-0a1b i-0c2d --yes
"""


@click.command("adopt", epilog=_EXAMPLES)
@click.argument("group", shell_complete=names.groups)
@click.argument("machine_ids", nargs=-1, metavar="[MACHINE_ID]...")
@click.option("--all-matching", "prefix", default="", metavar="PREFIX", help="All whose names begin so.")
@click.option("--yes", is_flag=True, help="Do it. Otherwise it is only shown what would be done.")
@admin_client.options
@output_option
def command(group: str, machine_ids: tuple[str, ...], prefix: str, admin: Admin, output: str, *, yes: bool) -> None:
    """Adopt machines that already run into a node group.

    MACHINE_ID is the cloud's own id of a machine. The machines need no marks of ours: they get them where their driver
    can do that, else their ids with their creation times prove that they are ours. Each must run, and its providerID
    must be that of its node. The autoscaler may then delete them when they are not needed, so look at the list before
    you say --yes.
    """
    if bool(machine_ids) == bool(prefix):
        raise click.UsageError("say which machines: either MACHINE_IDs, or --all-matching PREFIX")
    request = {"group": group, "machineIds": list(machine_ids), "namePrefix": prefix, "dryRun": not yes}
    nothing = "No machine of the group's cloud that is not in the journal has a name that begins so."
    print_result(admin.call("Adopt", request), done="adopted", nothing=nothing, output=output)
