"""Shows how far something is, in one line: replaced in place on a terminal, one line per change in a pipe."""

from __future__ import annotations

from typing import Self

import click
from rich.live import Live
from rich.text import Text

from cloudgraft.cli.terminal import console


class LiveLine:
    """The line, between ``with`` and its end. Its last text stays on the screen."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        """A quiet one shows nothing, for commands that print JSON."""
        self._is_quiet = is_quiet
        self._last = ""
        screen = console()
        is_live = screen.is_terminal and not is_quiet
        self._live = Live(Text(""), console=screen, auto_refresh=False) if is_live else None

    def __enter__(self) -> Self:
        """Begins to show it."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the terminal back."""
        if self._live is not None:
            self._live.stop()

    def show(self, line: str) -> None:
        """Shows the line, if it has changed. The caller has cleaned it of control characters."""
        if line == self._last or self._is_quiet:
            return
        self._last = line
        if self._live is not None:
            self._live.update(Text(line), refresh=True)
        else:
            click.echo(line)
