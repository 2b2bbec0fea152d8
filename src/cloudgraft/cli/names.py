"""Completes names on a command line: of groups, clouds and machines from the running server, and of drivers.

Completion must not disturb the line that is being typed. So a server that cannot be asked, or does not answer soon,
means that there are no names, without a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any, Final

import click

from cloudgraft.cli.admin_client import Admin
from cloudgraft.cli.server_file import DEFAULT_FILE, keys_of

_PATIENCE: Final = timedelta(seconds=2)


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The node groups of the server that the command would call."""
    return _matching((group["id"] for group in _status(context).get("groups", ())), incomplete)


def clouds(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Its clouds."""
    return _matching((cloud["name"] for cloud in _status(context).get("clouds", ())), incomplete)


def machines(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Its machines, by our names for them."""
    report = _status(context, machines=True)
    return _matching((one["name"] for group in report.get("groups", ()) for one in group["machines"]), incomplete)


def groups_and_machines(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Its groups, and its machines as soon as the beginning of a name is typed: there may be thousands."""
    report = _status(context, machines=bool(incomplete))
    names = [
        name for group in report.get("groups", ()) for name in (group["id"], *(m["name"] for m in group["machines"]))
    ]
    return _matching(names, incomplete)


def clouds_of_the_file(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The clouds of the configuration file, for commands that need no server."""
    return _matching(keys_of(context.params.get("path") or DEFAULT_FILE, "clouds"), incomplete)


def drivers(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The drivers that installed packages offer. Loads none of them."""
    return _matching((point.name for point in entry_points(group="cloudgraft.drivers")), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _status(context: click.Context, *, machines: bool = False) -> dict[str, Any]:
    given: dict[str, Any] = {field.name: context.params.get(field.name) for field in fields(Admin)}
    given |= {name: given[name] or "" for name in ("address", "server_name")}
    try:
        return Admin(**{**given, "timeout": _PATIENCE}).call("Status", {"machines": machines})
    except Exception:  # noqa: BLE001 - see above
        return {}
