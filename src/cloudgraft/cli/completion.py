"""`cloudgraft completion`: prints the script that completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cloudgraft.cli.terminal import examples

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", epilog=examples("completion bash"))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options, files and names.

    Names of groups, clouds and machines come from the running server, found as `cloudgraft status` finds it: by
    ./cloudgraft.yaml, --config or --admin. Without a server there are none.

    \b
    bash, for every new shell:
      echo 'source <(cloudgraft completion bash)' >> ~/.bashrc
    zsh, after compinit:
      echo 'source <(cloudgraft completion zsh)' >> ~/.zshrc
    fish:
      cloudgraft completion fish > ~/.config/fish/completions/cloudgraft.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has all three
    click.echo(made(context.find_root().command, {}, "cloudgraft", "_CLOUDGRAFT_COMPLETE").source())
