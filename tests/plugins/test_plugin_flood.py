"""A plugin that prints without end costs the server neither its event loop nor its disk."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cloudgraft.plugins.host.output import Output, OutputLog
from cloudgraft.plugins.host.process import PluginSpec, launch
from tests.conditions import until
from tests.plugins.plugin_programs import TIMING, shell

LINE = b"the cloud answered with something that nobody expected\n"
COUNT = 4000
FLOOD = LINE * COUNT  # 220 KB


def written(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "stream", "") == "stderr"]


def dropped(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.dropped_lines for record in caplog.records if hasattr(record, "dropped_lines")]


async def test_a_flood_of_output_leaves_the_event_loop_to_others(caplog: pytest.LogCaptureFixture) -> None:
    """Others run between any two reads of 8 KiB, although all of the flood is there to be read at once."""
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    stdout, stderr = asyncio.StreamReader(), asyncio.StreamReader(limit=len(FLOOD))
    stderr.feed_data(FLOOD)
    for stream in (stdout, stderr):
        stream.feed_eof()
    output = Output(OutputLog("noisy"))
    turns, others = 0, asyncio.Event()

    async def heartbeat() -> None:
        nonlocal turns
        while not others.is_set():
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heartbeat())
    output.follow(stdout, stderr)
    await output.read_rest(30)
    others.set()
    await beating
    await output.end(1)
    assert turns >= len(FLOOD) // 8192


async def test_every_line_of_a_flood_is_logged_or_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    stdout, stderr = asyncio.StreamReader(), asyncio.StreamReader()
    stderr.feed_data(FLOOD + b"Segmentation fault\n")
    for stream in (stdout, stderr):
        stream.feed_eof()
    output = Output(OutputLog("noisy"))
    output.follow(stdout, stderr)
    await output.end(30)
    assert 1000 <= len(written(caplog)) < COUNT
    assert len(written(caplog)) + sum(dropped(caplog)) == COUNT + 1
    assert len(dropped(caplog)) == 1
    assert "Segmentation fault" in output.last_words()  # also when it was dropped


async def test_a_flood_that_pauses_is_reported_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """The plugin lives on and says nothing more: the report does not wait for it."""
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    log = OutputLog("noisy", report_every=0.01)
    script = f"echo '1|1|unix|/nowhere|grpc'; yes noise | head -n {COUNT} >&2; exec sleep 600"
    child = await launch(PluginSpec(name="noisy", command=shell(script)), TIMING, log)
    try:
        await until(lambda: len(written(caplog)) + sum(dropped(caplog)) == COUNT, what="all lines are accounted for")
    finally:
        await child.stop()
    assert "prints too much" in caplog.text


async def test_a_restart_does_not_refill_the_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    log = OutputLog("noisy")
    for _ in range(2):
        await log.write("stderr", [b"noise"] * COUNT)
    assert len(written(caplog)) < COUNT
    log.report()


async def test_a_line_in_the_log_has_a_longest_length(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    await OutputLog("noisy").write("stderr", [b"x" * 16_000])
    assert len(written(caplog)[0].getMessage()) < 4200
