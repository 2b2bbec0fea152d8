"""The end of the demo: what happened, in figures, and what to do next. Fits on one screen of 80x24."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from cloudgraft.demo.frame import Summary

__all__ = ["print_summary"]

_NEXT = (
    ("cloudgraft serve --help", "serve the autoscaler from a configuration file"),
    ("cloudgraft status --help", "the groups, machines and clouds of a server"),
    ("cloudgraft explain --help", "why a group did, or did not, grow"),
    ("cloudgraft new --help", "a package to start your own driver from"),
    ("docs/", "tutorials, how-tos, reference, architecture"),
)


def print_summary(console: Console, summary: Summary) -> None:
    """Prints the figures of the day, the calls by kind, and what to try next."""
    console.print()
    both = Table.grid(padding=(0, 4, 0, 0))
    both.add_row(_figures(summary), _calls(summary))
    console.print(both)
    console.print("\nTry next:", style="bold")
    for command, purpose in _NEXT:
        console.print(Text.assemble("  ", (f"{command:<30}", "bold cyan"), purpose), soft_wrap=True)


def _table(*columns: Column) -> Table:
    return Table(*columns, box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)


def _figures(summary: Summary) -> Table:
    table = _table(Column("The day"), Column("", justify="right"))
    rows = (
        ("loops", f"{summary.loops}"),
        ("calls over mTLS", f"{summary.calls_total}"),
        ("pods run", f"{summary.pods_finished}"),
        ("machines created", f"{summary.machines_created}"),
        ("machines failed", f"{summary.machines_failed}"),
        ("machines deleted", f"{summary.machines_deleted}"),
        ("biggest size", f"{summary.most_machines} nodes, {summary.most_milli_cpu / 1000:g} cpu"),
        ("after the crash", f"lost {summary.books.lost}, doubled {summary.books.doubled}"),
        ("cost, as counted", f"{summary.cost:.2f}"),
        ("cost, as billed", f"{summary.books.cost:.2f}"),
        ("real time", f"{summary.seconds:.1f} s"),
    )
    for what, figure in rows:
        table.add_row(what, figure)
    return table


def _calls(summary: Summary) -> Table:
    table = _table(Column("Calls"), Column("times", justify="right"), Column("p50 ms", justify="right"))
    for figures in summary.calls:
        failed = Text(f" ({figures.failed} failed)" if figures.failed else "", style="bold red")
        table.add_row(Text(figures.rpc).append_text(failed), str(figures.count), f"{figures.p50_milliseconds:.2f}")
    return table
