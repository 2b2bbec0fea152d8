"""Fits a table to the width of the terminal without cutting a name in two.

Text wraps between words while each column keeps a readable width. When that is not enough, columns move below the row,
with their headings: empty ones first, then those that need the most room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_READABLE: Final = 24  # cells: text in a narrower column is hard to read
_BETWEEN: Final = 3  # cells between two columns
_EDGE: Final = 2
_INDENT: Final = 5  # of the lines below a row
_NOTHING: Final = ("", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """What one column needs, in cells."""

    whole: int  # without any wrapping
    least: int  # its longest word
    is_empty: bool  # no row has anything in it

    @property
    def readable(self) -> int:
        return max(self.least, min(self.whole, _READABLE))


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table for :meth:`rich.console.Console.print`."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Text]]
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Chooses the form by the width that there is."""
        columns = [self._measured(index) for index in range(len(self.headings))]
        kept = list(range(len(columns)))
        while len(kept) > 1 and _total(columns[i].readable for i in kept) > options.max_width:
            kept.remove(max(kept[1:], key=lambda index: (columns[index].is_empty, columns[index].readable, index)))
        if len(kept) == len(columns):
            yield self._table([column.whole for column in columns], options.max_width, columns)
        else:
            yield from self._stacked(kept, columns, options.max_width)

    def _measured(self, index: int) -> _Column:
        texts = [self.headings[index], *(row[index].plain for row in self.rows)]
        words = [word for text in texts for word in text.split()]
        return _Column(
            whole=max(map(cell_len, texts)),
            least=max(map(cell_len, words), default=0),
            is_empty=all(row[index].plain in _NOTHING for row in self.rows),
        )

    def _table(self, wholes: Sequence[int], width: int, columns: Sequence[_Column]) -> Table:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=self.title or None, title_justify="left")
        widths = wholes if _total(wholes) <= width else _shared(columns, width)
        for heading, chosen in zip(self.headings, widths, strict=True):
            made.add_column(heading, width=chosen, overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made

    def _stacked(self, kept: Sequence[int], columns: Sequence[_Column], width: int) -> Iterator[Table | Text | Padding]:
        """Rows of the columns that fit, each with the others below it."""
        moved = [index for index in range(len(columns)) if index not in kept]
        widths = _shared([columns[index] for index in kept], width)
        if self.title:
            yield Text(self.title, style="italic")
        yield Text("")
        yield _row([Text(self.headings[index], style="bold") for index in kept], widths)
        yield Text("─" * (_total(widths) - _EDGE))
        for row in self.rows:
            yield _row([row[index] for index in kept], widths)
            below = [(self.headings[index], row[index]) for index in moved if row[index].plain not in _NOTHING]
            yield from _below(below, width)
        yield Text("")


def _total(widths: Iterator[int] | Sequence[int]) -> int:
    found = list(widths)
    return sum(found) + _BETWEEN * (len(found) - 1) + _EDGE


def _shared(columns: Sequence[_Column], width: int) -> list[int]:
    """The readable widths, and what is left for the columns that need more, the neediest last."""
    chosen = [column.readable for column in columns]
    left = max(0, width - _total(chosen))
    wanting = sorted(range(len(columns)), key=lambda index: columns[index].whole - chosen[index])
    for place, index in enumerate(wanting):
        more = min(columns[index].whole - chosen[index], left // (len(wanting) - place))
        chosen[index] += more
        left -= more
    return chosen


def _row(cells: Sequence[Text], widths: Sequence[int]) -> Table:
    """One row. Text that is wider than its column wraps between words."""
    made = Table.grid(padding=(0, _BETWEEN, 0, 0))
    for width in widths:
        made.add_column(width=width, overflow="fold")
    made.add_row(*cells)
    return made


def _below(cells: Sequence[tuple[str, Text]], width: int) -> Iterator[Padding]:
    """The other values of a row, with their headings; several in one line where they fit."""
    line = Text("")
    for heading, cell in cells:
        part = Text.assemble((f"{heading}: ", "dim"), cell)
        if line and _INDENT + cell_len(line.plain) + _BETWEEN + cell_len(part.plain) > width:
            yield Padding(line, (0, 0, 0, _INDENT))
            line = Text("")
        line = Text.assemble(line, " " * _BETWEEN, part) if line else part
    if line:
        yield Padding(line, (0, 0, 0, _INDENT))
