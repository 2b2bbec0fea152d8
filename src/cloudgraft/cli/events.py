"""`cloudgraft events`: shows the events of a running server, and follows them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from cloudgraft.cli import admin_client, names
from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.terminal import clean, duration, examples, output_option
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.admin.client import AdminClient

_PAGE: Final = 1000  # events of one call, as many as the server gives
_LOOK_EVERY: Final = 1.0  # seconds


@click.command(
    "events", epilog=examples("events", "events --group small --since 1h", "events --follow --type scale --type guard")
)
@click.option("-f", "--follow", "is_following", is_flag=True, help="Go on with new events, until Ctrl-C.")
@click.option(
    "--group", default="", metavar="GROUP", shell_complete=names.groups, help="Only events about this node group."
)
@click.option(
    "--machine",
    default="",
    metavar="NAME",
    shell_complete=names.machines,
    help="Only about this machine: its name, id or providerID.",
)
@click.option("--type", "kinds", multiple=True, metavar="TYPE", help="Only of this type; may be repeated.")
@click.option("--since", default="", callback=duration, metavar="DURATION", help="Only those of the last 1h, 30m, …")
@click.option(
    "-n", "limit", type=click.IntRange(0, _PAGE), default=None, help="The newest N. Else 50; all with --since."
)
@admin_client.options
@output_option
def command(
    group: str,
    machine: str,
    kinds: tuple[str, ...],
    since: timedelta | None,
    limit: int | None,
    admin: Admin,
    output: str,
    *,
    is_following: bool,
) -> None:
    """Show the events of the running server, the newest last: what was decided, ordered and done, and why.

    They come from the journal, which keeps them for two weeks (store.keepEvents). --follow shows each new event once,
    also when the server is restarted meanwhile, and waits for a server that does not run yet. With -o json, each event
    is one line of JSON. The types are listed in docs/reference/events.md.
    """
    request: dict[str, object] = {"group": group, "machine": machine, "kinds": list(kinds)}
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(_show(admin, request, since, limit, output, is_following=is_following))
        except BrokenPipeError:
            # The reader has what it wanted. Python would complain at its end about what is still in the buffer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _show(
    admin: Admin,
    request: dict[str, object],
    since: timedelta | None,
    limit: int | None,
    output: str,
    *,
    is_following: bool,
) -> None:
    async with admin.connect() as client:
        if is_following:
            await _until_answered(client, request)
        cursor = await _past(client, request, since, limit, output)
        if is_following:
            await _follow(client, request, cursor, output)


async def _until_answered(client: AdminClient, request: Mapping[str, object]) -> None:
    """Waits for a server that does not run yet. Prints no event: the first page is asked for after it."""
    is_away = False
    while True:
        try:
            await client.call("Events", {**request, "limit": 1})
        except (DeadlineError, UnavailableError) as error:
            _say_away(error, is_known=is_away)
            is_away = True
            await _pause()
        else:
            return


def _say_away(error: CloudgraftError, *, is_known: bool) -> None:
    """Says once that the server is away."""
    if not is_known:
        click.echo(f"the server does not answer, and is asked again: {clean(error.message)}", err=True)


async def _past(
    client: AdminClient, request: dict[str, object], since: timedelta | None, limit: int | None, output: str
) -> int:
    """Prints the events that there are; returns the cursor after them."""
    chosen = {**request, "limit": 50 if limit is None else max(1, limit)}
    if since is not None:
        chosen["sinceSeconds"] = max(1, round(since.total_seconds()))
    if since is None or limit is not None:
        page = await client.call("Events", chosen)
        _print(page if limit != 0 else {**page, "events": []}, output)
        return int(str(page["cursor"]))
    return await _pages(client, {**chosen, "limit": _PAGE}, 0, output)


async def _pages(client: AdminClient, request: Mapping[str, object], cursor: int, output: str) -> int:
    """Prints all events after the cursor, page by page; returns the new cursor."""
    while True:
        page = await client.call("Events", {**request, "after": cursor})
        _print(page, output)
        cursor = int(str(page["cursor"]))
        if page["complete"]:
            return cursor


async def _follow(client: AdminClient, request: Mapping[str, object], cursor: int, output: str) -> None:
    """Prints new events for ever. The cursor moves only after events were printed: none is lost or comes twice."""
    request, is_away = {**request, "limit": _PAGE}, False
    while True:
        await _pause()
        try:
            page = await client.call("Events", {**request, "after": cursor})
        except (DeadlineError, UnavailableError) as error:
            _say_away(error, is_known=is_away)
            is_away = True
            continue
        is_away = False
        _print(page, output)
        cursor = int(str(page["cursor"]))


async def _pause() -> None:
    """Waits for the next look; raises BrokenPipeError as soon as nobody reads what is printed."""
    if _is_unread():
        raise BrokenPipeError
    await asyncio.sleep(_LOOK_EVERY)


def _is_unread() -> bool:
    """Whether standard output is a pipe that its reader has closed. Else only the next write would show it."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
        return any(flags & select.POLLERR for _, flags in poll.poll(0))
    except (OSError, ValueError):  # it is not a file
        return False


def _print(page: Mapping[str, Any], output: str) -> None:
    events: Sequence[Mapping[str, Any]] = page["events"]
    for event in events:
        click.echo(json.dumps(event, ensure_ascii=False) if output == "json" else _line(event))
    sys.stdout.flush()


def _line(event: Mapping[str, Any]) -> str:
    """Time, type, subject and message: one line, whatever the message has in it."""
    what = f"{event['kind']}={event['state']}" if event["state"] else event["kind"]
    subject = event["machine"] or event["group"] or event["cloud"] or "-"
    return clean(f"{event['at']}  {what:<16}  {subject}  {event['message']}")
