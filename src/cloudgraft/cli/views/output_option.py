"""The option of every command that prints data: a table for people, or JSON for programs."""

from __future__ import annotations

import click

__all__ = ["output_option"]

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or programs.",
)
