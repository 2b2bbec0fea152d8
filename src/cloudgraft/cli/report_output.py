"""Prints and writes the reports of `conformance` and `test-driver`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import RenderableType

from cloudgraft.cli.terminal import console, fail
from cloudgraft.conformance.render.for_programs import to_json, to_junit
from cloudgraft.conformance.render.html import to_html
from cloudgraft.conformance.render.table import view
from cloudgraft.conformance.report import Report


def print_report(report: Report, output: str) -> None:
    """Prints it as ``table``, ``json`` or ``html``."""
    if output == "table":
        print_view(view(report))
    else:
        click.echo(to_json(report) if output == "json" else to_html(report), nl=output == "json")


def print_view(shown: RenderableType) -> None:
    """Prints for people; in a pipe without the padding of tables."""
    out = console()
    if out.is_terminal:
        out.print(shown)
        return
    with out.capture() as captured:
        out.print(shown)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def write_junit(report: Report, path: str) -> None:
    """Writes the report as JUnit XML, unless the path is empty."""
    if not path:
        return
    try:
        Path(path).write_text(to_junit(report), encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error}")
