"""`cloudgraft orphans`: lists, adopts, releases and deletes orphans."""

from __future__ import annotations

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import clean, examples, output_option, print_json, print_result, print_table

_yes = click.option("--yes", is_flag=True, help="Do it. Otherwise it is only shown what would be done.")
_cloud = click.option(
    "--cloud", default="", metavar="CLOUD", shell_complete=names.clouds, help="Where several clouds use the same ids."
)


def _examples(*commands: str) -> str:
    return examples(*(f"orphans {command}" for command in commands))


@click.group("orphans", cls=Commands, epilog=_examples("list", "adopt --all --yes", "delete i-0a1b --yes"))
def command() -> None:
    """Find orphans and machines in trouble, and adopt, release or delete them.

    All commands but `list` only show what they would do, unless you give --yes.
    """


@command.command("list", epilog=_examples("list", "list -o json"))
@admin_client.options
@output_option
def _list(admin: Admin, output: str) -> None:
    """List what is in a cloud and not in the journal, or in the journal and in trouble.

    \b
    unknown   has our marks and is not in the journal
    unmarked  is named like ours, does not show our marks, and is not in the journal
    released  an operator took it out of the journal, and it still looks like ours
    missing   the latest list of its cloud does not have it
    unproven  it does not prove to be ours any more, so it is not deleted
    stuck     it should be gone, and is not
    """
    result = admin.call("ListOrphans")
    found = result["orphans"]
    if output == "json":
        print_json(result)
        return
    unknown = [f"cloud {each['cloud']}: {each['why']}" for each in result.get("unknown", ())]
    if not found and not unknown:
        click.echo("No orphans: every machine that looks like ours is in the journal, and where it should be.")
    elif not found:
        click.echo("No orphans are known, but not every cloud is known well enough:")
    else:
        rows = [
            [each["kind"], each["cloud"], each["group"], each["name"], each["machineId"], each["state"], each["since"]]
            for each in found
        ]
        print_table(["KIND", "CLOUD", "GROUP", "NAME", "MACHINE ID", "STATE", "SINCE"], rows)
        first = {each["kind"]: each for each in reversed(found)}
        hints = [[kind, each["detail"], each["hint"]] for kind, each in sorted(first.items())]
        print_table(["KIND", "WHAT IT MEANS", "FOR THE FIRST: cloudgraft orphans …"], hints)
        if unknown:
            click.echo("There may be more:")
    for line in unknown:
        click.echo(f"  {clean(line)}")


@command.command("adopt", epilog=_examples("adopt i-0a1b", "adopt i-0a1b --group small --yes", "adopt --all --yes"))
@click.argument("machine_ids", nargs=-1, metavar="[MACHINE_ID]...")
@click.option("--all", "everything", is_flag=True, help="All that have our marks and were not released.")
@click.option(
    "--group",
    default="",
    metavar="GROUP",
    shell_complete=names.groups,
    help="Into this group, instead of the one they were made for.",
)
@_cloud
@_yes
@admin_client.options
@output_option
def _adopt(
    machine_ids: tuple[str, ...], group: str, cloud: str, admin: Admin, output: str, *, everything: bool, yes: bool
) -> None:
    """Adopt orphans into the journal.

    A machine of the journal that does not prove to be ours any more (`unproven`) can be named too: it counts as ours
    from then on, and is deleted if it was to be deleted.
    """
    if bool(machine_ids) == everything:
        raise click.UsageError("say which orphans: either MACHINE_IDs, or --all")
    request = {"machineIds": list(machine_ids), "all": everything, "group": group, "cloud": cloud, "dryRun": not yes}
    print_result(admin.call("AdoptOrphans", request), done="adopted", nothing="No orphan has our marks.", output=output)


@command.command("release", epilog=_examples("release prod-abc123-small-1x2y3z4a --yes", "release --group old --yes"))
@click.argument("machines", nargs=-1, metavar="[MACHINE]...", shell_complete=names.machines)
@click.option(
    "--group",
    default="",
    metavar="GROUP",
    shell_complete=names.groups,
    help="All machines of a group that is draining.",
)
@_yes
@admin_client.options
@output_option
def _release(machines: tuple[str, ...], group: str, admin: Admin, output: str, *, yes: bool) -> None:
    """Release machines: remove them from the journal and leave them in their cloud.

    MACHINE is our name for it, the cloud's id or its providerID. cloudgraft never touches it again; it runs, and costs,
    until somebody deletes it. For the autoscaler its node belongs to no group from then on. Marks that `adopt` has set
    are removed. Remove our tags yourself from a machine that cloudgraft created: if the journal is ever lost, a machine
    with these tags is adopted again.
    """
    if bool(machines) == bool(group):
        raise click.UsageError("say which machines: either MACHINEs, or --group GROUP")
    request = {"machines": list(machines), "group": group, "dryRun": not yes}
    nothing = "The group has no machines; it ends with the autoscaler's next Refresh."
    print_result(admin.call("ReleaseMachines", request), done="released", nothing=nothing, output=output)


@command.command("delete", epilog=_examples("delete i-0a1b", "delete i-0a1b --yes", "delete i-0c2d --force --yes"))
@click.argument("machine_ids", nargs=-1, required=True, metavar="MACHINE_ID...")
@click.option("--force", is_flag=True, help="Also what does not show our marks. Be certain that it is yours.")
@_cloud
@_yes
@admin_client.options
@output_option
def _delete(machine_ids: tuple[str, ...], cloud: str, admin: Admin, output: str, *, force: bool, yes: bool) -> None:
    """Delete orphans in their cloud."""
    request = {"machineIds": list(machine_ids), "cloud": cloud, "force": force, "dryRun": not yes}
    print_result(admin.call("DeleteOrphans", request), done="deleted", nothing="", output=output)
