"""Every command of `cloudgraft`, with its subcommands: a test over all of them holds for those to come, too."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cloudgraft.cli.main import cloudgraft


def all_commands() -> dict[str, click.Command]:
    """Each command by its words, such as "db check"; the whole program is ""."""
    return dict(_below(cloudgraft, click.Context(cloudgraft, info_name="cloudgraft"), ()))


def _below(
    command: click.Command, context: click.Context, words: tuple[str, ...]
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(words), command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{words} lists {name} and does not have it"
            yield from _below(child, click.Context(child, info_name=name, parent=context), (*words, name))
