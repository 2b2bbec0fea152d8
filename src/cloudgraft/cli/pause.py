"""`cloudgraft pause`, `resume` and `accept-loss`: stops and resumes actions in a group or a cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cloudgraft.cli import admin_client
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import clean, examples, output_option, print_json


def _group_or_cloud(what_of_a_cloud: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the argument GROUP and the option --cloud, which exclude each other."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        cloud = click.option("--cloud", default="", metavar="CLOUD", help=what_of_a_cloud)
        group = click.argument("group", required=False)
        return group(cloud(command))

    return add


def _call(admin: Admin, method: str, group: str | None, cloud: str, **more: object) -> tuple[dict[str, Any], str]:
    """The server's answer, and the name of the group or cloud for a message."""
    if bool(group) == bool(cloud):
        raise click.UsageError("say either a GROUP or --cloud CLOUD")
    answer = admin.call(method, {**({"group": group} if group else {"cloud": cloud}), **more})
    return answer, clean(f"{answer['scope']} {answer['name']}")


def _print(answer: dict[str, Any], message: str, output: str) -> None:
    if output == "json":
        print_json(answer)
    else:
        click.echo(message)


@click.command("pause", epilog=examples("pause small --reason 'the invoice of May'", "pause --cloud lab"))
@_group_or_cloud("Pause all groups of this cloud instead.")
@click.option("--reason", default="", help="Shown in status, in explain, and to the autoscaler.")
@admin_client.options
@output_option
def command(group: str | None, cloud: str, reason: str, admin: Admin, output: str) -> None:
    """Pause a node group or a whole cloud: nothing is created or deleted there.

    The autoscaler still gets truthful answers. Machines that it requests meanwhile fail at once with this reason, so
    that it tries other groups; machines that it deletes are deleted after the group is resumed. A pause survives a
    restart.
    """
    answer, what = _call(admin, "Pause", group, cloud, reason=reason)
    end = clean(f"cloudgraft resume {'--cloud ' if cloud else ''}{answer['name']}")
    done = f"Paused {what}. `{end}` ends it." if answer["changed"] else f"{what.capitalize()} was paused already."
    _print(answer, done, output)


@click.command("resume", epilog=examples("resume small", "resume --cloud lab"))
@_group_or_cloud("Resume this cloud instead.")
@admin_client.options
@output_option
def resume(group: str | None, cloud: str, admin: Admin, output: str) -> None:
    """Resume a node group or a cloud that was paused."""
    answer, what = _call(admin, "Resume", group, cloud)
    _print(answer, f"Resumed {what}." if answer["changed"] else f"{what.capitalize()} was not paused.", output)


@click.command("accept-loss", epilog=examples("accept-loss --cloud lab", "accept-loss small"))
@_group_or_cloud("Accept that machines are missing in this cloud.")
@admin_client.options
@output_option
def accept_loss(group: str | None, cloud: str, admin: Admin, output: str) -> None:
    """Accept that many machines are gone from a CLOUD, or broken in a GROUP.

    When a list misses many machines at once, or a group has many broken ones, the server holds that back: the cloud is
    more likely wrong. `cloudgraft status` shows what is held back. Check in the cloud itself before you accept it: then
    missing machines count as gone, and broken ones are replaced step by step.
    """
    answer, what = _call(admin, "AcceptLoss", group, cloud)
    count = answer["machines"]
    _print(answer, f"Accepted: {count} machines of {what}." if count else f"Nothing of {what} is held back.", output)
