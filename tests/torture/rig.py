"""A simulated cloud in a thread, a configuration for it, and servers that are forked with everything imported."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order
from cloudgraft.torture.plan import Bounds
from cloudgraft.torture.prepare import prepare
from cloudgraft.torture.private_config import Paths
from cloudgraft.torture.report import Outline, Report
from cloudgraft.torture.run import Job, Run
from cloudgraft.torture.server_process import ServerProcess
from tests.plugins.fake_packages import write_package
from tests.serve import child
from tests.serve.processes import Command, LogLine
from tests.torture.faulty_drivers import NAMES

STRANGER = Order(name="db-1", settings=MachineSettings(shape="large"))


@dataclass(frozen=True, kw_only=True)
class World:
    """A kind of cloud, and what is said about it in the configuration."""

    driver: str = "simulated"
    cloud: Mapping[str, Any] = field(default_factory=dict)  # options of the cloud
    declared: Mapping[str, Any] = field(default_factory=dict)  # options of the driver
    chaos: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)  # of the cloud in the file


@contextmanager
def simulated(directory: Path, world: World) -> Iterator[tuple[SimulatedCloud, Path]]:
    """A cloud with one machine of somebody else, and the file of a user who has never started a server."""
    step = timedelta(milliseconds=50)
    cloud = SimulatedCloud(SimulatedOptions(boot_time=step, delete_time=step, **world.cloud))
    cloud.create(STRANGER)
    cloud.set_chaos(Chaos.from_json(dict(world.chaos)))
    server = HttpServer(cloud)
    server.start()
    try:
        file = directory / "cloudgraft.yaml"
        file.write_text(json.dumps(_configuration(server.url, world)))
        yield cloud, file
    finally:
        server.stop()
        cloud.close()


def _configuration(url: str, world: World) -> dict[str, Any]:
    engine = {
        "observeEvery": "100ms",
        "createTimeout": "2s",
        "backoff": {"initial": "50ms", "max": "200ms"},
        **world.engine,
    }
    return {
        "cluster": "mine",
        "clouds": {"sim": {"driver": world.driver, "url": url, "engine": engine, **world.declared}},
        "nodeGroups": [{"id": "small", "cloud": "sim", "maxSize": 3, "machine": {"shape": "small"}}],
    }


def job(file: Path, *, packages: Path | None = None, seed: int = 1, kills: int = 3, **more: Any) -> Job:
    """A run that is quick where it can be."""
    return prepare(
        file,
        group="",
        bounds=Bounds(kills=kills, machines=4, creates=more.pop("creates", 60), minutes=2),
        seed=seed,
        patience=more.pop("patience", 20.0),
        yes_use=more.pop("yes_use", ""),
        starter=lambda paths: _starter(paths, packages),
        **more,
    )


async def tortured(job: Job, agree: Callable[[Outline], bool] = lambda _: True) -> Report:
    """The report of a run."""
    return await Run(job, lambda _: None).run(agree)


def _starter(paths: Paths, packages: Path | None) -> Callable[[bool], Awaitable[ServerProcess]]:
    async def start(_with_children: bool) -> ServerProcess:
        return ForkedServer(paths, packages)

    return start


def install_faulty(directory: Path) -> Path:
    """A directory with the faulty drivers as entry points; for sys.path, here and in the servers."""
    points = {name: f"tests.torture.faulty_drivers:{cls}" for name, cls in NAMES.items()}
    write_package(directory, "faulty-drivers", group="cloudgraft.drivers", points=points)
    return directory


def run_with(log: Any, arguments: list[str], packages: str) -> None:
    """What runs in the forked process."""
    if packages:
        sys.path.insert(0, packages)
    child.run(log, arguments)


class ForkedServer:
    """A :class:`ServerProcess` that is there as soon as it is wanted."""

    def __init__(self, paths: Paths, packages: Path | None) -> None:
        self.serving = asyncio.Event()
        self._paths = paths
        self._packages = str(packages or "")
        self._command: Command | None = None
        self._exited = asyncio.Event()

    async def loaded(self) -> None: ...

    async def begin(self, on_line: Callable[[Mapping[str, Any]], None]) -> None:
        loop = asyncio.get_running_loop()

        def read(line: LogLine) -> None:
            with self._paths.log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if line.get("event") == "serving":
                self.serving.set()
            on_line(line)

        self._command = _Loud(
            lambda line: loop.call_soon_threadsafe(read, line),
            *("serve", "-c", self._paths.config),
            target=run_with,
            extra=(self._packages,),
        )
        sentinel = self._command._process.sentinel
        loop.add_reader(sentinel, self._exit, loop, sentinel)

    def _exit(self, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
        loop.remove_reader(sentinel)
        self._exited.set()

    def kill(self) -> None:
        if self._command is not None:
            self._command._process.kill()

    async def ended(self) -> int:
        await self._exited.wait()
        assert self._command is not None
        return self._command.wait() or 0

    async def stop(self) -> int:
        assert self._command is not None
        self._command._process.terminate()
        return await self.ended()

    async def discard(self) -> None:
        if self._command is not None:
            self.kill()
            await self._exited.wait()
            self._command.close()


class _Loud(Command):
    """Passes each line of its log on, from its own thread."""

    def __init__(self, on_line: Callable[[LogLine], object], *arguments: object, **how: Any) -> None:
        self._on_line = on_line
        super().__init__(*arguments, **how)

    def _read(self, handle: int) -> None:
        with os.fdopen(handle, encoding="utf-8") as lines:
            for text in lines:
                try:
                    self._on_line(json.loads(text))
                except ValueError:
                    continue
                except RuntimeError:  # the loop is closed
                    return
        self._new.put(None)
