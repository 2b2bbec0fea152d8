"""`cloudgraft status`: shows the state of a running server's groups, clouds and guards."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import ago, console, examples, output_option, print_json, table, text
from cloudgraft.cli.waiting import WaitingCommand
from cloudgraft.sdk.errors import CloudgraftError

# -- tables ------------------------------------------------------------------------------------------------------------


Report = Mapping[str, Any]
_PROBLEMS: Final = 5  # problems with nodes to show


def view(report: Report) -> Group:
    """The whole report."""
    return Group(
        *_head(report), *_groups(report), *_clouds(report), *_guards(report), *_machines(report), *_next(report)
    )


def _head(report: Report) -> Iterator[RenderableType]:
    transport = report.get("transport")  # missing in reports of earlier releases
    served = f", served over {transport}" if transport else ""
    yield text(f"cluster {report['cluster']} ({report['clusterId'] or 'no id yet'}), {report['at']}{served}")
    troubles = [
        f"not serving: {report['leaderTrouble']}" if not report["leader"] else "",
        report.get("openingTrouble", ""),
        f"the journal cannot be written: {report['journalTrouble']}" if report["journalTrouble"] else "",
        f"the configuration file is not valid, the old one stays: {report['configTrouble']}"
        if report["configTrouble"]
        else "",
        report.get("clusterTrouble", ""),
        report.get("clockTrouble", ""),
    ]
    for trouble in filter(None, troubles):
        yield text(trouble, "red")
    if report["configPending"]:
        yield text("a changed configuration waits for the autoscaler's next Refresh", "yellow")
    yield from _nodes(report.get("nodeProblems", ()))
    yield Text("")


def _nodes(problems: Sequence[str]) -> Iterator[RenderableType]:
    for problem in problems[:_PROBLEMS]:
        yield text(problem, "yellow")
    if len(problems) > _PROBLEMS:
        yield text(f"and {len(problems) - _PROBLEMS} more nodes like these; `-o json` has all", "yellow")


def _groups(report: Report) -> Iterator[RenderableType]:
    groups = report["groups"]
    if not groups and not report["leader"]:
        return  # a follower does not know its groups
    if not groups:
        yield text("No node group is served. Write `clouds` and `nodeGroups` into the configuration file.")
        return
    rows = [
        [
            group["id"],
            group["cloud"],
            group["target"],
            group["minSize"],
            group["maxSize"],
            ", ".join(f"{count} {state}" for state, count in group["states"].items()) or "-",
            f"{group['hourly']} {group['currency']}" if group["hourly"] else "-",
            _note(group),
        ]
        for group in groups
    ]
    yield table(["GROUP", "CLOUD", "TARGET", "MIN", "MAX", "MACHINES", "PRICE/H", "NOTE"], rows)


def _note(group: Report) -> Text:
    notes = []
    if group["paused"]:
        notes.append(f"{group['paused']['scope']} paused: {group['paused']['reason'] or 'no reason given'}")
    if group["draining"]:
        notes.append("draining")
    if group["leftOut"]:
        notes.append(f"left out: {group['leftOut']}")
    if group["stale"]:
        notes.append(f"an older configuration is served: {group['stale']}")
    if group.get("held"):
        notes.append(f"{group['held']} held back")
    if group.get("nodesUnready"):
        notes.append(f"{group['nodesUnready']} of {group['nodesJoined']} nodes not ready")
    if group.get("drift"):
        notes.append("nodes are not as promised")
    return text("; ".join(notes), "yellow")


def _machines(report: Report) -> Iterator[RenderableType]:
    groups = [group for group in report["groups"] if group["machines"]]
    is_complete = any(group["complete"] for group in groups)
    rows = [_machine(group["id"], machine) for group in groups for machine in group["machines"]]
    if rows:
        title = "" if is_complete else _in_trouble(groups)
        columns = ["MACHINE", "GROUP", "STATE", "FOR", "AGE", "NODE", "MACHINE ID", "PROVIDER ID", "ERROR"]
        if not any(_is_seen(machine) for group in groups for machine in group["machines"]):
            columns, rows = columns[:5] + columns[6:], [[*row[:5], *row[6:]] for row in rows]  # there is no cluster
        yield table(columns, rows, title)
    elif len(report["groups"]) == 1 and report["groups"][0]["complete"]:
        yield text("It has no machines.")


def _in_trouble(groups: Sequence[Report]) -> str:
    """The heading; it says whether some machines are not shown."""
    shown = sum(len(group["machines"]) for group in groups)
    failed = sum(group["states"].get("failed", 0) for group in groups)
    if shown >= failed:
        return "Machines in trouble"
    return f"Machines in trouble: {shown} of {failed}; `cloudgraft status GROUP` lists all of a group"


def _machine(group: str, machine: Report) -> Sequence[object]:
    error, trouble = machine["error"], machine.get("trouble")  # missing in reports of earlier releases
    return [
        machine["name"],
        group,
        machine["state"],
        ago(machine["stateAge"]),
        ago(machine["age"]),
        _node(machine),
        machine["machineId"] or "-",
        machine["providerId"] or "-",
        f"{error['code']}: {error['message']}" if error else trouble or "",
    ]


def _is_seen(machine: Report) -> bool:
    """Whether something is known of its node. Servers of earlier releases do not report nodes."""
    return machine.get("joined") is not None or machine.get("node") is not None


def _node(machine: Report) -> str:
    node = machine.get("node")
    if node is None:
        return "not joined" if machine.get("joined") is False and machine["state"] == "running" else "-"
    return f"not ready for {ago(node['unreadyFor'])}" if node["unreadyFor"] is not None else node["state"]


def _clouds(report: Report) -> Iterator[RenderableType]:
    rows = [
        [
            cloud["name"],
            cloud["driver"],
            "up" if cloud["up"] else "down" if cloud["error"] else "not listed yet",
            f"{ago(cloud['listAge'])} ago" if cloud["listAge"] is not None else "never",
            cloud["machinesListed"],
            cloud["machines"],
            cloud["orphans"],
            cloud["callsUnderWay"],
            _cloud_note(cloud),
        ]
        for cloud in report["clouds"]
    ]
    if rows:
        yield table(["CLOUD", "DRIVER", "STATE", "LISTED", "IN CLOUD", "OURS", "ORPHANS", "CALLS NOW", "NOTE"], rows)
        yield text(_LEGEND, "dim")


_LEGEND: Final = (
    "IN CLOUD: all machines in its latest list, ours or not. OURS: machines of the journal that it has, or may have. "
    "CALLS NOW: calls to it that have not been answered yet."
)


def _cloud_note(cloud: Report) -> Text:
    notes = [cloud[key] for key in ("blocked", "heldBack", "lag") if cloud.get(key)]
    if cloud["error"]:
        notes.append(f"since {cloud['downSince'] or 'the start'}: {cloud['error']}")
    if cloud.get("observeOnly"):
        notes.append("observeOnly: nothing is created or deleted")
    if cloud["paused"]:
        notes.append(f"paused: {cloud['paused']['reason'] or 'no reason given'}")
    return text("; ".join(notes), "yellow")


def _guards(report: Report) -> Iterator[RenderableType]:
    rows = [
        [
            guard["guard"],
            guard["scope"] or "all clouds",
            f"{guard['used']:g} {guard['unit']}".rstrip(),
            f"{guard['limit']:g}",
            text(f"{guard['left']:g}", "" if guard["left"] else "red"),
        ]
        for guard in report["guards"]
    ]
    if rows:
        yield table(["GUARD", "FOR", "USED", "LIMIT", "LEFT"], rows)


def _next(report: Report) -> Iterator[RenderableType]:
    """Suggests the next command."""
    troubled = [g["id"] for g in report["groups"] if g["leftOut"] or "failed" in g["states"] or g.get("drift")]
    if troubled:
        yield text(f"Why: cloudgraft explain {troubled[0]}")
    if any(cloud["orphans"] for cloud in report["clouds"]):
        yield text("Machines that nobody knows: cloudgraft orphans list")


@click.command(
    "status",
    cls=WaitingCommand,
    epilog=examples("status", "status small --watch", "status --admin unix:/run/cloudgraft.sock -o json"),
)
@click.argument("group", required=False, default="", shell_complete=names.groups)
@click.option("--machines", is_flag=True, help="List all machines of all groups, not only those in trouble.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks with --watch."
)
@admin_client.options(wait="show it")
@output_option
def command(group: str, interval: float, admin: Admin, output: str, *, machines: bool, is_watching: bool) -> None:
    """Show the state of the running server: groups, machines, clouds, guards.

    With GROUP, that group with all its machines. With --watch and -o json, one line of JSON each time.
    """
    request = {"group": group, "machines": machines}
    if is_watching:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch_server(admin, request, interval, output))
    elif output == "json":
        print_json(admin.call("Status", request))
    else:
        console().print(view(admin.call("Status", request)))


async def watch_server(admin: Admin, request: dict[str, object], interval: float, output: str) -> None:
    """Shows the status of a server, until cancelled."""
    async with admin.connect() as client:

        async def ask() -> dict[str, Any]:
            return await client.call("Status", request)

        if output == "json":
            await watch(ask, lambda answer: click.echo(json.dumps(answer)), _tell, interval)
            return
        screen = console()
        if not screen.is_terminal:
            await watch(ask, lambda answer: screen.print(view(answer)), _tell, interval)
            return
        with Live(Text("asking …"), console=screen, auto_refresh=False) as live:
            await watch(
                ask,
                lambda answer: live.update(view(answer), refresh=True),
                lambda error: live.update(text(f"error: {error.message}", "red"), refresh=True),
                interval,
            )


async def watch(
    ask: Callable[[], Awaitable[dict[str, Any]]],
    show: Callable[[dict[str, Any]], None],
    tell: Callable[[CloudgraftError], None],
    interval: float,
    *,
    rounds: int | None = None,
) -> None:
    """Fetches and shows the status repeatedly; reports a server that does not answer, and tries again."""
    while rounds is None or rounds > 0:
        try:
            show(await ask())
        except CloudgraftError as error:
            tell(error)
        rounds = rounds - 1 if rounds is not None else None
        if rounds != 0:
            await asyncio.sleep(interval)


def _tell(error: CloudgraftError) -> None:
    click.echo(f"error: {error.message}", err=True)
