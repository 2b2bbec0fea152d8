"""Groups commands, and suggests the nearest one for a wrong name."""

from __future__ import annotations

import click

from cloudgraft.sdk.common.nearest import nearest


class Commands(click.Group):
    """A group that suggests the nearest command for an unknown one. Exit code 2, as for all wrong usage."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that the arguments begin with."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = nearest(name, self.list_commands(ctx), fold=str.lower)
            hint = f"did you mean `{ctx.command_path} {near}`?" if near else "--help lists all commands"
            ctx.fail(f"there is no command {name!r}: {hint}")
        return super().resolve_command(ctx, args)
