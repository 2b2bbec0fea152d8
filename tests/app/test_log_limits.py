"""A driver or a library that floods the log neither fills the disk nor buries what others say."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from cloudgraft.app import logs
from cloudgraft.app.logs import LONGEST_VALUE, LogFlood
from cloudgraft.sdk import hide
from tests.cli.log_state import log_as_before
from tests.conditions import until

FLOOD = 5000


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a server with the usual log has written."""
    stream = io.StringIO()
    with log_as_before():
        logs.configure(2, "json", stream)
        yield stream


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    "name", ["somebodys_driver", "urllib3.connectionpool", "cloudgraft.drivers", "cloudgraft.liqo"]
)
def test_a_flood_of_one_logger_is_cut_and_others_are_heard(name: str, written: io.StringIO) -> None:
    for _ in range(FLOOD):
        logging.getLogger(name).error("the cloud said something")
    logging.getLogger("another_driver").error("the disk is full")
    found = events(written)
    assert 500 < len(found) < FLOOD
    assert found[-1]["event"] == "the disk is full"


def test_the_servers_own_lines_have_no_limit(written: io.StringIO) -> None:
    for _ in range(FLOOD):
        logging.getLogger("cloudgraft.engine").error("a machine was deleted")
    assert len(events(written)) == FLOOD


async def test_every_line_is_written_or_counted(written: io.StringIO) -> None:
    handler = logging.getLogger().handlers[0]
    handler.filters[:] = [LogFlood(report_every=0.05)]
    for _ in range(FLOOD):
        logging.getLogger("somebodys_driver").error("the cloud said something")

    def accounted() -> bool:
        found = events(written)
        lines = sum(one["event"] == "the cloud said something" for one in found)
        return lines + sum(int(str(one.get("dropped_lines", 0))) for one in found) == FLOOD

    await until(accounted, what="all lines are written or counted")
    assert "somebodys_driver logs too much" in written.getvalue()


def test_more_loggers_than_anybody_has_share_one_rate(written: io.StringIO) -> None:
    for number in range(FLOOD):
        logging.getLogger(f"flood.{number}").error("noise")
    assert len(events(written)) < FLOOD


def test_a_line_has_a_longest_length(written: io.StringIO) -> None:
    logging.getLogger("cloudgraft.engine").error("x" * 10_000_000, exc_info=ValueError("y" * 10_000_000))
    assert len(written.getvalue()) < 4 * LONGEST_VALUE


def test_no_half_of_a_secret_is_left_where_a_line_is_cut(written: io.StringIO) -> None:
    hide("a-secret-that-is-cut")
    text = "x" * (LONGEST_VALUE - 10) + "a-secret-that-is-cut" + "y" * 100
    logging.getLogger("cloudgraft.engine").error("%s", text)
    assert "a-secret" not in written.getvalue()
