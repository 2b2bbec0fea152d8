"""Being told to stop, at any moment, by a real signal to a real process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import asyncio, sys, threading
from cloudgraft.sdk import BlockingProvider
from cloudgraft.server import ServeOptions, serve
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider

class Slow(MemoryProvider):
    async def start(self):
        if "start" in sys.argv:
            print("starting", file=sys.stderr, flush=True)
            await asyncio.Event().wait()
    async def close(self):
        if "close" in sys.argv:
            await asyncio.Event().wait()

class Stuck(BlockingProvider):
    def start(self):
        print("starting", file=sys.stderr, flush=True)
        threading.Event().wait()
    close = start
    node_groups = node_group_for_node = target_size = instances = start
    increase_size = delete_nodes = decrease_target_size = start

provider = Stuck() if "blocking" in sys.argv else Slow(MemoryOptions(groups=[MemoryGroup(id="a")]))
serve(provider, ServeOptions(listen="127.0.0.1:0", grace=0.2))
"""


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "ing" in process.stderr.readline()  # "serving", or "starting" for one that never gets there
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("where", ["serving", "start", "close", "blocking"])
def test_one_signal_ends_the_program_wherever_it_is(where: str, number: signal.Signals) -> None:
    with program(where) as process:
        process.send_signal(number)
        assert process.wait(30) == 0
