"""`cloudgraft scale`: changes the size of a node group by hand, and waits for the machines."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import CALL_LIMIT, Admin
from cloudgraft.cli.live_line import LiveLine
from cloudgraft.cli.machine_progress import FAILED, GONE, READY, Machine, Progress, counted_names, progress
from cloudgraft.cli.terminal import clean, duration, examples, fail, output_option, print_json, print_table
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.admin.client import AdminClient

_FAILED, _TIMED_OUT, _UNKNOWN, _INTERRUPTED = 3, 4, 5, 130  # exit codes
_WAIT: Final = timedelta(minutes=30)  # longer than the engine's own limits for a create and a join
_LOOK_EVERY: Final = 0.5  # seconds
_AGAIN: Final = 0.5  # seconds before an order is repeated whose answer was lost
_CHANGE: Final = re.compile(r"[+=-][0-9]{1,6}", re.ASCII)
_REMOVAL: Final = re.compile(r"-[0-9]+", re.ASCII)


class _ScaleCommand(click.Command):
    """Reads an argument like -1 as a change. For click it would be an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if _REMOVAL.fullmatch(arg) else arg for arg in args])


def _change(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    change = text.strip()
    if not _CHANGE.fullmatch(change):
        hint = f" Say ={change}, +{change} or -{change}." if change.isdecimal() else ""
        raise click.BadParameter(f"{clean(change)!r}: write +2 for two more, -1 for one less, =5 for five.{hint}")
    if change[0] != "=" and not int(change[1:]):
        raise click.BadParameter(f"{change!r} changes nothing: write +2 for two more, -1 for one less, =5 for five.")
    return change


@click.command(
    "scale",
    cls=_ScaleCommand,
    epilog=examples(
        "scale small +2 --wait",
        "scale small =5",
        "scale small -1",
        "scale small -1 --machine prod-abc123-small-1x2y3z4a --yes",
    ),
)
@click.argument("group", shell_complete=names.groups)
@click.argument("change", metavar="+N|-N|=N", callback=_change)
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until the machines are ready, or gone.")
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME",
    shell_complete=names.machines,
    help="Remove this machine; may be repeated.",
)
@click.option("--delete-ready", is_flag=True, help="Also remove machines that run, the newest first, without a drain.")
@click.option("--yes", is_flag=True, help="Remove machines without a question.")
@click.option("--order", default="", metavar="ID", help="Repeat an order whose answer was lost: it is made once.")
@admin_client.options(
    timeout=click.option(
        "--timeout",
        default="",
        callback=duration,
        metavar="DURATION",
        help="With --wait, how long to wait for the machines; else 30m. Without it, for the answer; else 30s.",
    )
)
@output_option
def command(
    group: str,
    change: str,
    machines: tuple[str, ...],
    order: str,
    admin: Admin,
    output: str,
    *,
    is_waiting: bool,
    delete_ready: bool,
    yes: bool,
) -> None:
    """Change the size of a node group by hand: two more (+2), one less (-1), or exactly five (=5).

    The limits of the group and the guards hold: an order that breaks one is refused as a whole. The autoscaler may
    change the size again: it removes nodes that it finds unneeded.

    To shrink, machines go first for which no call was made yet, then failed ones, then those that are being created.
    A machine that runs is removed only when you name it with --machine or say --delete-ready: the autoscaler drains
    a node before it deletes it, and this command does not.

    With --wait, a machine is ready when it runs and, where the server watches the cluster, its node is ready.

    \b
    Exit codes:
      0  done; with --wait: all machines are ready, or gone
      1  refused: nothing was changed
      2  the command line makes no sense
      3  machines failed, or were removed before they were ready
      4  not ready, or not gone, within --timeout; the order stands
      5  no answer: repeat the order with --order ID, it is made once
    """
    if machines and change.startswith("+"):
        raise click.UsageError(f"--machine names a machine to remove, and {change} removes none")
    request: dict[str, object] = {
        "group": group,
        "change": change,
        "machines": list(machines),
        "deleteReady": delete_ready,
        "user": _user(),
        "order": order or secrets.token_hex(8),
    }
    answer_limit = admin.timeout if admin.timeout is not None and not is_waiting else CALL_LIMIT
    session = _Session(request=request, answer_limit=answer_limit, wait_limit=admin.timeout or _WAIT, output=output)
    try:
        asyncio.run(session.run(replace(admin, timeout=answer_limit), is_waiting=is_waiting, yes=yes))
    except KeyboardInterrupt:
        session.interrupted()


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _user() -> str:
    """The user at this terminal, also behind sudo; empty where the system has no name for them."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return (os.environ.get("SUDO_USER") or getpass.getuser())[:100]
    return ""


@dataclass(slots=True, kw_only=True)
class _Session:
    """One run of the command."""

    request: dict[str, object]
    answer_limit: timedelta
    wait_limit: timedelta
    output: str
    is_sent: bool = False
    is_answered: bool = False

    @property
    def group(self) -> str:
        return clean(str(self.request["group"]))

    async def run(self, admin: Admin, *, is_waiting: bool, yes: bool) -> None:
        async with admin.connect() as client:
            if not str(self.request["change"]).startswith("+"):
                await self._confirm(client, yes=yes)
            answer = await self._order(client)
            self._print_answer(answer)
            if is_waiting:
                await self._wait(client, answer)
            elif self.output == "json":
                print_json(answer)

    # -- the order -----------------------------------------------------------------------------------------------------

    async def _confirm(self, client: AdminClient, *, yes: bool) -> None:
        """Shows what would be removed, and asks. The order then removes these machines, or nothing."""
        plan = await client.call("Scale", {**self.request, "dryRun": True})
        if yes or not plan["removed"] or plan["repeated"]:
            return
        removed: Sequence[Mapping[str, str]] = plan["machines"]  # type: ignore[assignment]  # as the server writes it
        self.request["expected"] = [machine["name"] for machine in removed]
        if _is_terminal():
            print_table(["MACHINE TO REMOVE", "STATE"], [[machine["name"], machine["state"]] for machine in removed])
            if any(machine["state"] == "running" for machine in removed):
                click.echo("Machines that run are deleted without a drain: their pods are killed.")
            if not click.confirm(f"Remove {len(removed)} from {self.group}?"):
                fail("nothing was changed")
        elif any(machine["state"] == "running" for machine in removed):
            raise click.UsageError("this deletes machines that run, and there is no terminal to ask: say --yes")

    async def _order(self, client: AdminClient) -> dict[str, Any]:
        """Sends the order, again after a lost answer: its id keeps it from being made twice."""
        ends, is_lost = time.monotonic() + self.answer_limit.total_seconds(), False
        while True:
            self.is_sent = True
            try:
                answer = await client.call("Scale", {**self.request, "dryRun": False})
            except (DeadlineError, UnavailableError) as error:
                is_lost = is_lost or isinstance(error, DeadlineError)
                if not is_lost:
                    raise  # it was never sent, or the server says that it did nothing
                if time.monotonic() >= ends:
                    self._unknown(error.message)
            else:
                self.is_answered = True
                return answer
            await asyncio.sleep(_AGAIN)

    def _unknown(self, why: str) -> NoReturn:
        fail(f"{why}. It is not known whether the order was made", hint=self._again(), code=_UNKNOWN)

    def _again(self) -> str:
        order = clean(f"{self.request['group']} {self.request['change']} --order {self.request['order']}")
        return f"`cloudgraft scale {order}`, with the same other options, asks again; the order is made once"

    def interrupted(self) -> NoReturn:
        """Ends the command after Ctrl-C, and says what stands."""
        if self.is_answered:
            fail("interrupted; the order stands", hint=f"`cloudgraft status {self.group}` shows it", code=_INTERRUPTED)
        if self.is_sent:
            fail("interrupted before the answer came", hint=self._again(), code=_INTERRUPTED)
        fail("interrupted; nothing was changed", code=_INTERRUPTED)

    def _print_answer(self, answer: Mapping[str, Any]) -> None:
        if self.output == "json":
            return
        done = f"{answer['added']} ordered" if answer["added"] else f"{answer['removed']} removed"
        again = ", by the same order before" if answer["repeated"] else ""
        if not answer["machines"]:
            click.echo(f"{self.group} has a target of {answer['target']} already; nothing was changed.")
            return
        click.echo(f"{self.group}: target {answer['before']} -> {answer['target']}, {done}{again}.")
        for machine in answer["machines"]:
            click.echo(f"  {clean(machine['name'])}")
        click.echo("note: the autoscaler may change the size again")

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self, client: AdminClient, answer: Mapping[str, Any]) -> None:
        wanted = GONE if answer["removed"] else READY
        names = [machine["name"] for machine in answer["machines"]]
        seen, is_over = await self._watch(client, names, wanted)
        if wanted == READY:
            seen = replace(seen, machines=[await _explained(client, machine) for machine in seen.machines])
        bad = seen.with_outcome(FAILED, GONE) if wanted == READY else []
        missing = [] if is_over else [machine for machine in seen.machines if machine.outcome != wanted]
        if self.output == "json":
            outcome = "timeout" if missing else "failed" if bad else wanted
            machines = [{"name": m.name, "stage": m.stage, "error": m.error} for m in seen.machines]
            waited = {"outcome": outcome, "nodesWatched": seen.nodes_watched, "machines": machines}
            print_json({**answer, "waited": waited})
        else:
            self._print_end(seen, bad or missing, wanted)
        if missing:
            after = format_duration(self.wait_limit)
            fail(
                f"after {after}, {len(missing)} of {len(seen.machines)} are not {wanted}; the order stands",
                code=_TIMED_OUT,
            )
        if bad:
            fail(f"{len(bad)} of {len(seen.machines)} machines are not {READY}", code=_FAILED)

    async def _watch(self, client: AdminClient, names: Sequence[str], wanted: str) -> tuple[Progress, bool]:
        """Looks until all machines have come to their end, or time is up; returns whether they have."""
        ends, chosen, told = time.monotonic() + self.wait_limit.total_seconds(), list(names), ""
        seen = Progress(machines=[Machine(name=name, stage="not looked at yet") for name in chosen])
        with LiveLine(is_quiet=self.output == "json") as line:
            while True:
                try:
                    report = await client.call("Status", {"group": self.request["group"]})
                except (DeadlineError, UnavailableError) as error:
                    if not told:
                        click.echo(f"the server does not answer, and is asked again: {clean(error.message)}", err=True)
                    told = error.message
                else:
                    told = ""
                    chosen = chosen or counted_names(report)
                    seen = progress(report, chosen)
                    line.show(f"{self.group}: {clean(seen.line())}")
                    if _is_over(seen, wanted):
                        return seen, True
                if time.monotonic() >= ends:
                    return seen, False
                await asyncio.sleep(_LOOK_EVERY)

    def _print_end(self, seen: Progress, others: Sequence[Machine], wanted: str) -> None:
        if others:
            print_table(["MACHINE", "STAGE", "ERROR"], [[m.name, m.stage, m.error] for m in others])
        elif wanted == GONE:
            click.echo(f"{len(seen.machines)} gone.")
        elif seen.nodes_watched:
            click.echo(f"{len(seen.machines)} ready: the machines run, and their nodes are ready.")
        else:
            click.echo(f"{len(seen.machines)} ready: the machines run. No cluster is configured to see their nodes.")


def _is_over(seen: Progress, wanted: str) -> bool:
    """A removed machine is done only when it is gone, whatever it was before."""
    if wanted == GONE:
        return len(seen.with_outcome(GONE)) == len(seen.machines)
    return seen.is_over


async def _explained(client: AdminClient, machine: Machine) -> Machine:
    """With the last word of its history, for a machine that is gone and so in no status."""
    if machine.outcome != GONE:
        return machine
    try:
        history: Sequence[Any] = (await client.call("Explain", {"subject": machine.name}))["events"]  # type: ignore[assignment]
    except CloudgraftError:
        return machine
    failures = [event for event in history if event["state"] == "failed"]
    last = [*history[-1:], *failures[-1:]]
    return replace(machine, error=last[-1]["message"] if last else "")
