"""`cloudgraft discovery`: serves the register of remote clusters, announces a cluster, or shows the register."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import click

from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import examples
from cloudgraft.sdk.errors import PreconditionError

# subcommand -> module and name in it, in the order of the help
_PARTS = {
    "serve": ("discovery_serve", "serve"),
    "agent": ("discovery_agent", "agent"),
    "clusters": ("discovery_clusters", "clusters"),
    "offers": ("discovery_clusters", "offers"),
    "put": ("discovery_clusters", "put"),
    "delete": ("discovery_clusters", "delete"),
    "prices": ("discovery_clusters", "prices"),
    "credentials": ("discovery_clusters", "credentials"),
    "rotate-keys": ("discovery_serve", "rotate_keys"),
}
_NEEDED = ("fastapi", "uvicorn", "httpx2")


class _Parts(Commands):
    """Loads a subcommand's module when it is used: showing the clusters does not load the server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PARTS:
            return None
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise PreconditionError(f"discovery needs {', '.join(missing)}: pip install 'cloudgraft[web]'")
        module, name = _PARTS[cmd_name]
        found: click.Command = getattr(importlib.import_module(f"cloudgraft.cli.{module}"), name)
        return found


@click.command(
    "discovery",
    cls=_Parts,
    epilog=examples(
        "discovery serve --config discovery.yaml",
        "discovery agent --config agent.yaml",
        "discovery offers --cpu 2 --memory 4Gi",
    ),
)
def command() -> None:
    """Remote clusters that share resources: who, how much, at what price.

    `serve` keeps the register, `agent` announces one cluster to it, and the others look at it or change it.
    """
