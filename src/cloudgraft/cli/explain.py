"""`cloudgraft explain`: explains why a group did or did not scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import ago, clean, examples, output_option, print_json, print_table


@click.command("explain", epilog=examples("explain small", "explain prod-abc123-small-1x2y3z4a -o json"))
@click.argument("subject", metavar="GROUP|MACHINE", shell_complete=names.groups_and_machines)
@click.option("--limit", type=click.IntRange(1, 1000), default=30, show_default=True, help="How many events to show.")
@admin_client.options
@output_option
def command(subject: str, limit: int, admin: Admin, output: str) -> None:
    """Explain why a node group did or did not scale, or what happened to a machine.

    Shows the current obstacles, the autoscaler's latest requests, the machines in trouble, and recent decisions. For a
    machine (by our name for it, the cloud's id or its providerID) it shows its history.
    """
    answer = admin.call("Explain", {"subject": subject, "limit": limit})
    if output == "json":
        print_json(answer)
    elif answer["subject"] == "group":
        _print_group(answer)
    else:
        _print_machine(answer)


def _print_group(answer: Mapping[str, Any]) -> None:
    group = answer["group"]
    click.echo(clean(f"{answer['id']}: {answer['verdict']}"))
    states = ", ".join(f"{count} {state}" for state, count in group["states"].items()) or "no machines"
    sizes = f"target {group['target']}, min {group['minSize']}, max {group['maxSize']}"
    click.echo(clean(f"  {sizes}{_at_its_maximum(group)}; {states}" if group["served"] else f"  not served; {states}"))
    for number, reason in enumerate(answer["reasons"]):
        if number:  # the first is the diagnosis
            click.echo(f"- {clean(reason['what'])}")
        if reason["todo"]:
            click.echo(f"  -> {clean(reason['todo'])}")
    asked = answer["asked"]
    if asked:
        click.echo("\nWhat the autoscaler last asked for:")
        _print_events(asked)
    if answer["troubled"]:
        click.echo("\nMachines in trouble:")
        rows = [[m["name"], ago(m["stateAge"]), m["error"]["code"], m["error"]["message"]] for m in answer["troubled"]]
        print_table(["NAME", "FOR", "CODE", "ERROR"], rows)
    click.echo("\nOf late:")
    _print_timeline(answer)


def _at_its_maximum(group: Mapping[str, Any]) -> str:
    is_full = group["target"] >= group["maxSize"] and not group["draining"]
    return " (at its maximum)" if is_full else ""


def _print_machine(answer: Mapping[str, Any]) -> None:
    click.echo(clean(f"{answer['id']}: {answer['verdict']}"))
    machine = answer["machine"]
    if machine is not None:
        click.echo(clean(f"  machine id {machine['machineId'] or '-'}, providerID {machine['providerId'] or '-'}"))
    click.echo("\nIts history:")
    _print_timeline(answer)


def _print_timeline(answer: Mapping[str, Any]) -> None:
    if answer["eventsTrouble"]:
        click.echo(clean(f"  the journal cannot be read now: {answer['eventsTrouble']}"))
    elif not answer["events"]:
        click.echo("  nothing that the journal remembers")
    else:
        _print_events(answer["events"])


def _print_events(events: Iterable[Mapping[str, Any]]) -> None:
    rows = [[event["at"], event["state"] or event["kind"], _counted(event), event["message"]] for event in events]
    print_table(["TIME", "WHAT", "MACHINE", "WHY"], rows)


def _counted(event: Mapping[str, Any]) -> str:
    return f"{event['count']} machines" if event["count"] > 1 and event["state"] else str(event["machine"])
