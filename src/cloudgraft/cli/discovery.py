"""`cloudgraft discovery`: serves the register of remote clusters, announces a cluster, or shows the register."""

from __future__ import annotations

import importlib

import click

from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import examples
from cloudgraft.sdk.common.extras import check_installed

# subcommand -> module and name in it, and its description: the help needs none of the extra's libraries
_PARTS = {
    "serve": ("discovery_serve", "serve", "Serve discovery over HTTPS until told to stop."),
    "agent": ("discovery_agent", "agent", "Measure what a cluster has to share, and announce it."),
    "clusters": ("discovery_clusters", "clusters", "Show the clusters that a server knows."),
    "offers": ("discovery_clusters", "offers", "Search for clusters that could hold a node, with reasons."),
    "put": ("discovery_clusters", "put", "Declare a cluster, or change what is declared of it."),
    "delete": ("discovery_clusters", "delete", "Forget a cluster."),
    "prices": ("discovery_clusters", "prices", "Show or set the prices of a cluster."),
    "credentials": (
        "discovery_clusters",
        "credentials",
        "Hand in the kubeconfig that others peer with.",
    ),
    "rotate-keys": ("discovery_serve", "rotate_keys", "Encrypt all credentials with the first key of the vault."),
}
_NEEDED = ("fastapi", "uvicorn", "httpx2")
_HELP = {"-h", "--help"}


class _Parts(Commands):
    """Loads a subcommand's module when it is used: showing the clusters does not load the server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PARTS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; without the extra's libraries only its help."""
        if not ctx.resilient_parsing and args[0] in _PARTS and not _HELP & set(args):
            check_installed("discovery", *_NEEDED, extra="web")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PARTS:
            return None
        module, name, _ = _PARTS[cmd_name]
        found: click.Command = getattr(importlib.import_module(f"cloudgraft.cli.{module}"), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, description) for name, (_, _, description) in _PARTS.items()])


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
