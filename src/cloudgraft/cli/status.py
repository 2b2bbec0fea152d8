"""`cloudgraft status`: shows the state of a running server's groups, clouds and guards."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from cloudgraft.cli import admin_client
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.views.admin import console, output_option, print_json, text
from cloudgraft.cli.views.status import view
from cloudgraft.sdk.errors import CloudgraftError

_EXAMPLES = """\b
Examples:
  cloudgraft status
  cloudgraft status small --watch
  cloudgraft status --admin unix:/run/cloudgraft.sock -o json
"""


@click.command("status", epilog=_EXAMPLES)
@click.argument("group", required=False, default="")
@click.option("--machines", is_flag=True, help="List all machines of all groups, not only those in trouble.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks with --watch."
)
@admin_client.options
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
