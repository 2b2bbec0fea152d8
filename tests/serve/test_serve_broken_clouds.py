"""Law 6 on a whole server: a cloud whose list has no end, and a plugin that floods its output, harm nobody else."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk.errors import UnavailableError
from tests.conditions import until
from tests.plugins.plugin_programs import DRIVER
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running
from tests.serve.settings import FAST, Section, configuration, simulated, small

MIB = 1024 * 1024
FLOODING = f"""
import os, runpy, sys, threading
line = b"the cloud said something that nobody expected, once more\\n" * 1000

def flood():
    while True:
        os.write(2, line)

threading.Thread(target=flood, daemon=True).start()
sys.argv = [{str(DRIVER)!r}]
runpy.run_path({str(DRIVER)!r}, run_name="__main__")
"""


class _Endless(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    padding = "x"

    def do_GET(self) -> None:
        page = int(self.path.partition("=")[2] or 0)
        machines = [
            {"name": f"m{page}-{one}", "machineID": f"i{page}-{one}", "reason": self.padding} for one in range(500)
        ]
        body = json.dumps({"machines": machines, "nextPageToken": str(page + 1)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the server has had enough
            self.close_connection = True


@contextmanager
def endless(padding: int) -> Iterator[str]:
    """A receiver whose pages never end; each machine has so many bytes more than it needs."""
    handler = type("Handler", (_Endless,), {"padding": "x" * padding})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def memory(pid: int) -> int:
    """The most that a process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


async def answers(provider: RemoteProvider) -> bool:
    try:
        await provider.refresh()
    except UnavailableError:
        return False
    return True


async def grows(provider: RemoteProvider, by: int) -> None:
    """The other cloud does as it is told."""
    await until(lambda: answers(provider), what="the end of the wait for the first lists")
    before = len(await provider.instances("a"))
    await provider.increase_size("a", by)
    await running(provider, "a", before + by)


def both(good: Cloud, bad: Section) -> str:
    engine = {"firstListTimeout": "1s"}  # the bad cloud may never be listed
    return configuration({"good": simulated(good.url), "bad": bad}, [small("a", "good")], engine=engine)


async def test_a_list_without_end_is_the_trouble_of_its_cloud_alone(tmp_path: Path) -> None:
    with Cloud(tmp_path) as good, endless(padding=100) as url:
        bad = {"driver": "http", "url": url, "engine": {"maxListMachines": 2000}}
        with Server(tmp_path / "c.yaml", both(good, bad)) as server:
            server.says("cloud bad cannot be used: the list has more than 2000 entries")
            async with server.connected() as provider:
                await grows(provider, 2)
            assert server.stop() == 0


@pytest.mark.thorough
async def test_a_plugin_that_floods_its_output_delays_nobody(tmp_path: Path) -> None:
    program = tmp_path / "flooding.py"
    program.write_text(FLOODING)
    machines = str(tmp_path / "machines")
    bad = {"driver": "plugin", "command": [sys.executable, str(program)], "options": {"directory": machines}}
    with Cloud(tmp_path) as good, Server(tmp_path / "c.yaml", both(good, bad)) as server:
        async with server.connected() as provider:
            server.wait_for(lambda line: line.get("stream") == "stderr")
            for _ in range(5):
                await grows(provider, 1)
        assert server.stop() == 0
        server.says("the plugin bad prints too much")
        assert len(server.said('"stream": "stderr"')) < 10_000


@pytest.mark.thorough
async def test_lists_without_end_are_bounded_in_memory(tmp_path: Path) -> None:
    """With the usual bounds, and machines that are as large as they can be: it was 1.9 GB in a minute."""
    with Cloud(tmp_path) as good, endless(padding=8000) as url:
        bad = {"driver": "http", "url": url, "engine": FAST}
        with Server(tmp_path / "c.yaml", both(good, bad)) as server:
            async with server.connected() as provider:
                server.says("cloud bad cannot be used: the list has more than 134217728 bytes")
                for _ in range(3):
                    await grows(provider, 1)
                    await asyncio.sleep(3)  # further lists are read meanwhile
            assert memory(server.pid) < 700 * MIB
            assert server.stop() == 0
