"""The demo's screen: what a person must be able to see on it, on a small terminal and on a large one."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cloudgraft.demo.calls import CallRecord
from cloudgraft.demo.events import Frame, Kind, Pace
from cloudgraft.demo.view import has_room, print_summary, render
from tests.demo.playing import PlayedDay

pytestmark = pytest.mark.xdist_group("day")  # it is played once

SIZES = [(80, 24), (80, 40), (140, 24), (160, 50)]


def terminal(width: int, height: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, record=True, _environ={"TERM": "xterm"}
    )


def picture(frame: Frame, width: int, height: int) -> list[str]:
    console = terminal(width, height)
    console.print(render(frame, width=width, height=height), end="")
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_moment_of_the_day_fits_the_screen(day: PlayedDay, width: int, height: int) -> None:
    for frame in day.news:
        lines = picture(frame, width, height)
        assert len(lines) == height
        assert max(map(len, lines)) <= width
        # Neither the headline nor what explains it is cut off.
        assert frame.events[-1].headline in lines[1]
        assert frame.events[-1].detail in lines[2]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_stock_out_can_be_seen(day: PlayedDay, width: int, height: int) -> None:
    short = day.first(Kind.OUT_OF_STOCK)
    text = "\n".join(picture(short, width, height))
    for shown in (
        "12:05",
        "NO STOCK",
        "small is out of stock",
        "■ ■ □ □ ✗ ✗ ✗ ✗ backed off",
        "7 running  11 pending",
        "small-1 ████████ 2/2 cpu",
        "NodeGroupGetOptions",
        "355 calls",
        "cost so far 0.41  now 0.16/h",
        "0..8",
        "8 cpu 32Gi",
        short.address,
    ):
        assert shown in text


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_that_nobody_listens_after_the_crash_can_be_seen(day: PlayedDay, width: int, height: int) -> None:
    crash, restart = (day.first(kind) for kind in (Kind.CRASH, Kind.RESTART))
    assert f"{crash.address} closed" in "\n".join(picture(crash, width, height))
    assert f"{restart.address} mTLS" in "\n".join(picture(restart, width, height))


@pytest.mark.parametrize(("width", "height"), [(80, 40), (140, 24), (160, 50)])
def test_a_large_screen_has_the_story_so_far(day: PlayedDay, width: int, height: int) -> None:
    text = "\n".join(picture(day.frames[-1], width, height))
    assert "the story so far" in text
    assert "21:35 gone       small-2 is gone" in text


def test_a_call_that_fails_can_be_seen(day: PlayedDay) -> None:
    failed = CallRecord(rpc="NodeGroupDeleteNodes", subject="small", code="UNAVAILABLE", milliseconds=5.0)
    text = "\n".join(picture(replace(day.frames[-1], calls=(failed,)), 80, 24))
    assert "UNAVAILABLE" in text


def test_the_summary_fits_a_screen_and_says_what_to_try_next(day: PlayedDay) -> None:
    console = terminal(80, 24)
    print_summary(console, day.summary)
    lines = console.export_text().rstrip("\n").split("\n")
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for shown in (
        "machines failed",
        "6 nodes, 24 cpu",
        "NodeGroupIncreaseSize",
        "p50 ms",
        "lost 0, doubled 0",
        "cloudgraft explain",
    ):
        assert shown in text


@pytest.mark.parametrize(
    ("width", "height", "term", "room"),
    [(80, 24, "xterm", True), (79, 24, "xterm", False), (80, 23, "xterm", False), (80, 24, "dumb", False)],
)
def test_a_terminal_that_is_too_small_or_too_simple_has_no_room(
    width: int, height: int, term: str, *, room: bool
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, _environ={"TERM": term})
    assert has_room(console) is room


def test_a_pipe_has_no_room() -> None:
    assert not has_room(Console(file=io.StringIO(), width=80, height=24))


def test_news_is_shown_longer_than_the_steps_between(day: PlayedDay) -> None:
    news = [Pace(1.0).seconds(frame) for frame in day.frames if frame.is_news]
    steps = [Pace(1.0).seconds(frame) for frame in day.frames if not frame.is_news]
    assert min(news) > max(steps) > 0
    assert 20 <= sum(news) + sum(steps) <= 35


def test_speed_divides_the_time_and_without_a_speed_nothing_waits(day: PlayedDay) -> None:
    frame = day.frames[0]
    assert Pace(2.0).seconds(frame) == Pace(1.0).seconds(frame) / 2
    assert Pace(None).seconds(frame) == 0
