"""Shows the demo: a full screen, plain lines, and the summary at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.align import Align
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from cloudgraft.demo.calls import CallRecord
from cloudgraft.demo.events import Event, Frame, GroupState, Kind, NodeRow, Pace, Summary
from cloudgraft.demo.timetable import clock_time
from cloudgraft.sdk import Instance, InstanceState

# -- screen ------------------------------------------------------------------------------------------------------------
# One frame in, one picture out, from 80x24 upwards.


_KIND_STYLES: Final = {
    Kind.START: "blue",
    Kind.WORK: "yellow",
    Kind.SCALE_UP: "green",
    Kind.REGISTERED: "green",
    Kind.OUT_OF_STOCK: "red",
    Kind.FALLBACK: "magenta",
    Kind.CRASH: "red",
    Kind.RESTART: "green",
    Kind.DONE: "yellow",
    Kind.SCALE_DOWN: "cyan",
    Kind.GONE: "cyan",
    Kind.NIGHT: "blue",
}
_STORY_FROM_HEIGHT: Final = 32  # there is room for the story so far
_STORY_BESIDE_FROM_WIDTH: Final = 140


def render(frame: Frame, *, width: int, height: int, tick: int = 0) -> Layout:
    """The whole screen; ``tick`` counts the pictures, for what blinks."""
    groups_height = len(frame.groups) + 3
    screen = Layout()
    rows = [
        Layout(_header(frame), size=5),
        Layout(_groups(frame, tick), size=groups_height),
        Layout(_pods(frame), size=3),
    ]
    left = height - 5 - groups_height - 3
    story = _story(frame.events)
    if width >= _STORY_BESIDE_FROM_WIDTH:
        rows.append(_side_by_side(_nodes(frame), _calls(frame, left - 2), story))
    elif height >= _STORY_FROM_HEIGHT:
        calls_height = left // 2
        rows.append(Layout(_side_by_side(_nodes(frame), _calls(frame, calls_height - 2)), size=calls_height))
        rows.append(Layout(story))
    else:
        rows.append(_side_by_side(_nodes(frame), _calls(frame, left - 2)))
    screen.split_column(*rows)
    return screen


def render_start() -> RenderableType:
    """What is on the screen before there is anything to show."""
    words = Text("starting a server with throw-away certificates …", style="dim")
    return Layout(Align.center(words, vertical="middle"))


def _side_by_side(nodes: RenderableType, calls: RenderableType, *more: RenderableType) -> Layout:
    row = Layout()
    row.split_row(Layout(nodes, ratio=3), Layout(calls, ratio=4), *(Layout(other, ratio=5) for other in more))
    return row


def _panel(content: RenderableType, title: str, *, subtitle: str = "", style: str = "dim") -> Panel:
    return Panel(
        content,
        title=f"[not dim]{title}[/]",
        title_align="left",
        subtitle=f"[not dim]{subtitle}[/]" if subtitle else None,
        subtitle_align="right",
        border_style=style,
        box=box.ROUNDED,
        padding=(0, 1),
    )


# -- current event -----------------------------------------------------------------------------------------------------


def _header(frame: Frame) -> Panel:
    event = frame.events[-1] if frame.events else Event(kind=Kind.START, time=frame.time, headline="")
    style = _KIND_STYLES[event.kind]
    # An older event stays visible, but dimmed.
    is_fresh = frame.is_news or event.time == frame.time
    badge = Text(f" {event.kind.value.upper()} ", style=f"bold reverse {style}" if is_fresh else f"reverse {style}")
    said = event.headline if is_fresh else f"{clock_time(event.time)} {event.headline}"
    headline = Text.assemble(
        (f"{clock_time(frame.time)}  ", "bold"), badge, "  ", (said, "bold" if is_fresh else "dim")
    )
    headline.no_wrap, headline.overflow = True, "ellipsis"
    detail = Text(f"{'':7}{event.detail}", style="default" if is_fresh else "dim", no_wrap=True, overflow="ellipsis")
    day = ProgressBar(
        total=frame.ends - frame.begins,
        completed=frame.time - frame.begins,
        style="dim",
        complete_style=style,
        finished_style=style,
    )
    title = "[bold]cloudgraft demo[/]: a day of an autoscaled cluster"
    where = f"{frame.address} mTLS" if frame.is_up else f"[bold red]{frame.address} closed[/]"
    return _panel(Group(headline, detail, day), title, subtitle=where, style=style)


# -- groups and machines -----------------------------------------------------------------------------------------------


def _groups(frame: Frame, tick: int) -> Panel:
    table = Table(
        Column("group", style="bold", no_wrap=True),
        Column("min..max", justify="right", no_wrap=True),
        Column("target", justify="right", no_wrap=True),
        Column("price/h", justify="right", no_wrap=True),
        Column("template", no_wrap=True),
        Column("machines", ratio=1, no_wrap=True),
        box=None,
        expand=True,
        header_style="dim",
        padding=(0, 2, 0, 0),
    )
    for group in frame.groups:
        target = Text(str(group.target), style="bold" if group.target else "dim")
        table.add_row(
            group.id,
            f"{group.min_size}..{group.max_size}",
            target,
            f"{group.price:.2f}",
            f"{group.shape.milli_cpu / 1000:g} cpu {group.shape.memory}",
            _machines(group, tick),
        )
    legend = "[yellow]▫[/] asked [yellow]□[/] creating [green]■[/] running [cyan]▒[/] deleting [bold red]✗[/] failed"
    return _panel(table, "node groups", subtitle=legend)


def _machines(group: GroupState, tick: int) -> Text:
    boxes = Text(no_wrap=True, overflow="ellipsis")
    for instance in sorted(group.instances, key=_rank):
        boxes.append_text(_box(instance, tick))
        boxes.append(" ")
    alive = sum(instance.state is not InstanceState.DELETING for instance in group.instances)
    boxes.append("▫ " * (group.target - alive), style="yellow")
    boxes.append("· " * (group.max_size - max(alive, group.target)), style="dim")
    if group.backed_off:
        boxes.append("backed off", style="red")
    return boxes


def _rank(instance: Instance) -> int:
    """The sort key of an instance: equal states together, failed ones last."""
    states = (InstanceState.RUNNING, InstanceState.CREATING, InstanceState.DELETING)
    return states.index(instance.state) if instance.error is None else len(states)


def _box(instance: Instance, tick: int) -> Text:
    if instance.error is not None:
        return Text("✗", style="bold red")
    if instance.state is InstanceState.CREATING:
        return Text("□", style="bold yellow" if tick % 6 < 3 else "yellow")
    if instance.state is InstanceState.DELETING:
        return Text("▒", style="cyan")
    return Text("■", style="bold green")


# -- pods and nodes ----------------------------------------------------------------------------------------------------


def _pods(frame: Frame) -> Panel:
    counts = Text.assemble(
        (f"{frame.pods_running} running", "green"),
        "  ",
        (f"{frame.pods_pending} pending", "bold yellow" if frame.pods_pending else "dim"),
        (f"  {frame.pods_finished} finished", "dim"),
    )
    bar = Text("■" * frame.pods_running, style="green", no_wrap=True, overflow="ellipsis")
    bar.append("□" * frame.pods_pending, style="bold yellow")
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    row.add_column(no_wrap=True)
    row.add_column(ratio=1, no_wrap=True)
    row.add_row(counts, bar)
    cost = f"cost so far [bold]{frame.cost:.2f}[/]  now [bold]{frame.cost_per_hour:.2f}[/]/h"
    return _panel(row, "pods", subtitle=cost)


def _nodes(frame: Frame) -> Panel:
    table = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(no_wrap=True), padding=(0, 1, 0, 0))
    for node in frame.nodes:
        style = "cyan" if node.leaving else "dim" if node.unneeded else "default"
        used = f"{node.used_milli_cpu / 1000:g}/{node.milli_cpu / 1000:g} cpu"
        table.add_row(Text(node.name, style=style), _gauge(node), Text(_state(node) or used, style=style))
    content: RenderableType = table if frame.nodes else Text("none", style="dim")
    return _panel(content, f"nodes [bold]{len(frame.nodes)}[/]")


def _state(node: NodeRow) -> str:
    return "deleting" if node.leaving else "unneeded" if node.unneeded else ""


def _gauge(node: NodeRow, cells: int = 8) -> Text:
    filled = round(cells * node.used_milli_cpu / node.milli_cpu) if node.milli_cpu else 0
    return Text.assemble(("█" * filled, "green"), ("░" * (cells - filled), "dim"))


# -- calls and story ---------------------------------------------------------------------------------------------------


def _calls(frame: Frame, rows: int) -> Panel:
    table = Table.grid(
        Column(no_wrap=True, overflow="ellipsis", ratio=1),
        Column(no_wrap=True, overflow="ellipsis", justify="right", max_width=8),
        Column(no_wrap=True),
        Column(no_wrap=True, justify="right"),
        expand=True,
        padding=(0, 1, 0, 0),
    )
    for last, count, milliseconds in list(_runs(frame.calls))[-max(rows, 1) :]:
        name = Text(last.rpc, style="bold" if last.rpc in _CHANGES else "default")
        name.append(f" x{count}" if count > 1 else "", style="dim")
        code = Text(last.code, style="green" if last.code == "OK" else "bold red")
        about = Text(last.subject if count == 1 else "", style="dim")
        table.add_row(name, about, code, Text(f"{milliseconds:.1f} ms", style="dim"))
    return _panel(table, "last calls", subtitle=f"{frame.calls_total} calls")


_CHANGES: Final = frozenset({"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"})


def _runs(calls: Iterable[CallRecord]) -> Iterator[tuple[CallRecord, int, float]]:
    """Calls of one kind in a row as one line: the last of them, how many, and how long each took on average."""
    for _, run in groupby(calls, key=lambda call: (call.rpc, call.code)):
        same = list(run)
        yield same[-1], len(same), sum(call.milliseconds for call in same) / len(same)


def _story(events: Sequence[Event]) -> Panel:
    lines = Table.grid(
        Column(no_wrap=True, width=5),
        Column(no_wrap=True, width=10),
        Column(no_wrap=True, overflow="ellipsis", ratio=1),
        expand=True,
        padding=(0, 1, 0, 0),
    )
    for event in reversed(events):
        style = _KIND_STYLES[event.kind]
        lines.add_row(Text(clock_time(event.time), style="dim"), Text(event.kind.value, style=style), event.headline)
    return _panel(lines, "the story so far")


# -- terminal ----------------------------------------------------------------------------------------------------------
# A full screen that is redrawn a few times a second.


_PICTURE: Final = 0.15  # seconds between two pictures of one frame
_LEAST_WIDTH: Final = 80
_LEAST_HEIGHT: Final = 24


def has_room(console: Console) -> bool:
    """Whether the screen can be shown there: a terminal that can move its cursor, and not too small."""
    size = console.size
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and size.width >= _LEAST_WIDTH
        and size.height >= _LEAST_HEIGHT
    )


class LivePresenter:
    """Draws frames while it is open; closing it restores the screen."""

    def __init__(self, console: Console, pace: Pace) -> None:
        self._console = console
        self._pace = pace
        self._tick = 0
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        """Takes the screen."""
        self._live.start()
        self._live.update(render_start(), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives it back."""
        self._live.stop()

    async def show(self, frame: Frame) -> None:
        """Draws the frame until its time is over; the next picture fits a resized terminal."""
        until = time.monotonic() + self._pace.seconds(frame)
        while True:
            width, height = self._console.size
            self._live.update(render(frame, width=width, height=height, tick=self._tick), refresh=True)
            self._tick += 1
            left = until - time.monotonic()
            await asyncio.sleep(max(0.0, min(left, _PICTURE)))
            if left <= _PICTURE:
                return


# -- plain lines -------------------------------------------------------------------------------------------------------
# One per event: for pipes, logs and dumb terminals.


class PlainPresenter:
    """Prints each event once."""

    def __init__(self, console: Console, pace: Pace) -> None:
        self._console = console
        self._pace = pace

    async def show(self, frame: Frame) -> None:
        """Prints what is new, and waits if a speed was asked for."""
        if frame.is_news:
            event = frame.events[-1]
            if event.kind is Kind.START:
                self._print(f"serving on {frame.address} over mTLS; a client calls it as the autoscaler would\n")
            self._print(f"{clock_time(event.time)}  {event.kind.value:<10}  {event.headline}")
            if event.detail:
                self._print(f"{'':19}{event.detail}")
        await self._pace.wait(frame)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


# -- summary -----------------------------------------------------------------------------------------------------------
# Figures and what to do next. Fits on one screen of 80x24.


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
    both.add_row(_figures(summary), _calls_table(summary))
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


def _calls_table(summary: Summary) -> Table:
    table = _table(Column("Calls"), Column("times", justify="right"), Column("p50 ms", justify="right"))
    for figures in summary.calls:
        failed = Text(f" ({figures.failed} failed)" if figures.failed else "", style="bold red")
        table.add_row(Text(figures.rpc).append_text(failed), str(figures.count), f"{figures.p50_milliseconds:.2f}")
    return table
