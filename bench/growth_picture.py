"""Draws how the cost of a call grows, as a picture for the docs: an SVG, and the figures as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from bench.growth_measure import Growth

_WIDTH, _HEIGHT = 300.0, 240.0  # of one panel, its captions included
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 30.0, 46.0
_COLOURS: Final = {"go": "#777777", "native": "#0b62d6", "grpcio": "#d9480f"}
_LEGEND: Final = 26.0


def draw(growths: Sequence[Growth]) -> str:
    """The picture: one panel for each, side by side, with logarithmic axes."""
    width, height = _WIDTH * len(growths), _HEIGHT + _LEGEND
    font = 'font-family="sans-serif" font-size="11" fill="#333333"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" {font}>',
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    for number, growth in enumerate(growths):
        parts += [f'<g transform="translate({number * _WIDTH:g} 0)">', *_panel(growth), "</g>"]
    for number, kind in enumerate(_COLOURS):
        x, y = _LEFT + number * 90, _HEIGHT + 12
        parts += [_line([(x, y), (x + 22, y)], kind), f'<text x="{x + 28:g}" y="{y + 4:g}">{kind}</text>']
    return "\n".join([*parts, "</svg>", ""])


def _panel(growth: Growth) -> Iterator[str]:
    xs = sorted({x for curve in growth.curves for x, _ in curve.points})
    ys = [y for curve in growth.curves for _, y in curve.points]
    marks = _marks(min(ys), max(ys))
    across = _scale(xs[0], xs[-1], _LEFT, _WIDTH - _RIGHT)
    up = _scale(marks[0], marks[-1], _HEIGHT - _BOTTOM, _TOP)
    yield f'<text x="{_LEFT:g}" y="16" font-weight="bold">{escape(growth.figure)}</text>'
    for mark in marks:
        at = up(mark)
        yield f'<path d="M{_LEFT:g} {at:.1f}H{_WIDTH - _RIGHT:g}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{mark:,}</text>'
    for x in xs:
        yield f'<text x="{across(x):.1f}" y="{_HEIGHT - _BOTTOM + 16:g}" text-anchor="middle">{x:,}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:g}" y="{_HEIGHT - _BOTTOM + 34:g}" text-anchor="middle">{escape(growth.along)}</text>'
    for curve in growth.curves:
        points = [(across(x), up(y)) for x, y in curve.points]
        yield _line(points, curve.kind)
        for left, top in points:
            yield f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2.5" fill="{_COLOURS[curve.kind]}"/>'


def _line(points: Sequence[tuple[float, float]], kind: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{_COLOURS[kind]}" stroke-width="2"/>'


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: begin + (end - begin) * math.log(value / low) / span


def _marks(low: float, high: float) -> list[int]:
    """Round numbers, so that all figures lie between the first and the last."""
    steps = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
    first = max(step for step in steps if step <= max(low, 1.0))
    last = min(step for step in steps if step >= high)
    return [step for step in steps if first <= step <= last]


def growth_as_json(growths: Sequence[Growth]) -> str:
    """All figures."""
    return json.dumps([asdict(growth) for growth in growths], indent=2)


def print_growth_tables(growths: Sequence[Growth], console: Console) -> None:
    """The same as tables; a console that is no terminal writes Markdown."""
    for growth in growths:
        kinds = [curve.kind for curve in growth.curves]
        table = Table(f"{growth.along}: {growth.figure}", *kinds, *(f"{kind} / {kinds[0]}" for kind in kinds[1:]))
        table.box = table.box if console.is_terminal else box.MARKDOWN
        for at, (x, first) in enumerate(growth.curves[0].points):
            figures = [curve.points[at][1] for curve in growth.curves]
            table.add_row(f"{x:,}", *(f"{y:,.0f}" for y in figures), *(f"{y / first:.2f}" for y in figures[1:]))
        console.print(table)
