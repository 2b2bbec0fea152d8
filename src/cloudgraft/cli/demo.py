"""`cloudgraft demo`: plays a short day of an autoscaled cluster, without any setup."""

from __future__ import annotations

import asyncio
import signal

import click
from rich.console import Console

from cloudgraft.cli.groups import Commands
from cloudgraft.sdk.common.extras import needing

_SLOWEST, _FASTEST = 0.1, 1000.0


def _checked_speed(_context: click.Context, _option: click.Parameter, speed: float | None) -> float | None:
    if speed is not None and not _SLOWEST <= speed <= _FASTEST:
        raise click.BadParameter(f"must be between {_SLOWEST:g} and {_FASTEST:g}.")
    return speed


@click.group("demo", cls=Commands, invoke_without_command=True)
@click.option("--plain", is_flag=True, help="Plain lines, as in a pipe, without any waiting.")
@click.option(
    "--speed",
    type=float,
    callback=_checked_speed,
    help="How fast the day goes by, 2 for twice as fast; with --plain, lets it wait.  [default: 1]",
)
@click.pass_context
def command(context: click.Context, *, plain: bool, speed: float | None) -> None:
    """Play a short day of an autoscaled cluster: no Kubernetes, no cloud, no configuration.

    A real server on a port of loopback, with mTLS, the real client, the engine with its journal on disk, and a
    simulated cloud: work comes, groups grow from zero, the cheap group runs out of stock and another one steps in.
    cloudgraft dies with an order under way, and goes on from its journal: no machine is lost, none is made twice. Work
    ends, everything shrinks to zero again, and the cloud's bill is compared with what the client has counted. Takes
    half a minute on a terminal. Exit code 1 if anything does not happen as it should.

    \b
    Example:
      cloudgraft demo
      cloudgraft demo --speed 2
      cloudgraft demo --plain | less
      cloudgraft demo liqo
    """
    if context.invoked_subcommand is not None:
        return
    from cloudgraft.cli.demo_run import play_live, play_plain
    from cloudgraft.demo.view import has_room, print_summary

    console = Console(highlight=False)
    try:
        summary = play_live(console, speed) if has_room(console) and not plain else play_plain(console, speed)
    except KeyboardInterrupt:
        summary = signal.SIGINT
    if isinstance(summary, signal.Signals):
        click.echo("interrupted; the server is stopped", err=True)
        context.exit(128 + summary)
    print_summary(console, summary)


@command.command("liqo")
@click.pass_context
def liqo(context: click.Context) -> None:
    """Play remote clusters as nodes: cost decides which of three is asked. No Kubernetes, no Liqo, no configuration.

    A real discovery server with mTLS, the real engine with its journal on disk and the real Liqo driver. Only the
    clusters are small API servers in this process, and Liqo is played by controllers of ours. A node comes from the
    cheapest cluster; prices change, and the next one comes from elsewhere; a cluster dies, and another takes its place;
    at the end every slice is given back and every peering is taken down. Takes about ten seconds. Exit code 1 if
    anything does not happen as it should.

    \b
    Example:
      cloudgraft demo liqo
    """
    from cloudgraft.cli.demo_run import log_errors
    from cloudgraft.server.signals import run_or_interrupt

    with needing("the demo of Liqo", "liqo"):
        from cloudgraft.demo.liqo import play as play_liqo
    log_errors()
    console = Console(highlight=False)

    def tell(kind: str, line: str) -> None:
        console.print(f"{kind:<10}  {line}", markup=False, highlight=False, soft_wrap=True)

    ended = asyncio.run(run_or_interrupt(play_liqo(tell)))
    if isinstance(ended, signal.Signals):
        click.echo("interrupted; everything is stopped", err=True)
        context.exit(128 + ended)
