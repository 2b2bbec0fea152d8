"""The engine that is measured, as a process: ``python -m bench.engine_server --journal FILE --groups N ...``.

What ``cloudgraft serve`` runs, with a watchdog on the event loop. It first prints a line of JSON with its address, and
then one for each line that it reads: what it has done so far. It ends when its input does.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from bench.engine_fleet import CLOUD, desired_state, group_names
from bench.watchdog import Watchdog
from cloudgraft.app import logs
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.metrics import EngineMetrics
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.server.serve import ServeOptions, running, settle
from cloudgraft.service.gate import Gate
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.records import Change
from cloudgraft.store.sql import SqlJournal

_AT_A_TIME = 5  # machines that one step of the churn asks for
_STEPS_LATER = 20  # they are deleted again


class CountingJournal(SqlJournal):
    """The journal, which knows how much was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteDatabase(path))
        self.transactions = self.records = self.told = 0

    async def write(self, change: Change) -> None:
        """Counts a transaction, and makes it."""
        self.transactions += 1
        self.records += len(change.machines)
        self.told += len(change.events)
        await super().write(change)


class SilentDriver(Driver):
    """A cloud that never answers: whatever an engine does meanwhile, it does without it (law 1)."""

    async def create(self, spec: MachineSpec) -> Machine:
        """Never."""
        await _for_ever()

    async def delete(self, machine: Machine) -> None:
        """Never."""
        await _for_ever()

    async def list(self) -> Sequence[Machine]:
        """Never."""
        await _for_ever()


async def _for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody answers")


async def main(options: argparse.Namespace) -> None:
    """Serves, works and answers until its input ends."""
    journal = CountingJournal(options.journal)
    plan = desired_state(options.groups, _driver(options.cloud), timedelta(seconds=options.observe_every))
    engine = Engine(plan, journal)
    provider, listen = EngineProvider(engine), ServeOptions(listen="127.0.0.1:0")
    watchdog = Watchdog()
    began = time.perf_counter()
    async with running(provider, listen, trouble=engine.trouble, gate=Gate(engine.check_leader)) as server:
        seconds = time.perf_counter() - began
        EngineMetrics(engine, server.service.metrics.registry)
        tasks: list[Coroutine[None, None, None]] = [watchdog.watch()]
        if options.churn:
            tasks.append(await make_churn(provider, options.groups, options.churn))
        settle()
        running_tasks = [asyncio.create_task(task) for task in tasks]
        lines = await _lines_of_input()
        _tell({"address": server.address, "seconds": seconds})
        while await lines.readline():
            _tell({**done(engine, journal), **watchdog.take()})
        for task in running_tasks:
            task.cancel()


def done(engine: Engine, journal: CountingJournal) -> dict[str, float]:
    """What the engine has done since it started."""
    ended = engine.workers[CLOUD].caller.statistics.ended
    return {
        "lists": ended["list", "ok"],
        "creates": ended["create", "ok"],
        "deletes": ended["delete", "ok"],
        "transactions": journal.transactions,
        "records": journal.records,
        "events": journal.told,
    }


async def make_churn(provider: EngineProvider, groups: int, steps_per_second: float) -> Coroutine[None, None, None]:
    """Work that never ends, beside the machines that are there now."""
    names = group_names(groups)
    old = {instance.id for name in names for instance in await provider.instances(name)}
    return churn(provider, names, old, 1 / steps_per_second)


async def churn(provider: EngineProvider, names: Sequence[str], old: set[str], pause: float) -> None:
    """Asks for machines in one group after another, and deletes those that it asked for a while ago."""
    grown: deque[str] = deque()
    for name in itertools.cycle(names):
        await provider.increase_size(name, _AT_A_TIME)
        grown.append(name)
        if len(grown) > _STEPS_LATER:
            back = grown.popleft()
            instances = await provider.instances(back)
            spare = [one for one in instances if one.id not in old and one.state is InstanceState.RUNNING]
            await provider.delete_nodes(back, [NodeRef(name=one.id, provider_id=one.id) for one in spare])
        await asyncio.sleep(pause)


def _driver(url: str) -> Callable[[], Driver]:
    return (lambda: SimulatedDriver(SimulatedOptions(url=url))) if url else SilentDriver


async def _lines_of_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--cloud", default="", help="URL of a simulated cloud; one that never answers unless given")
    parser.add_argument("--observe-every", type=float, default=3600.0, help="seconds")
    parser.add_argument("--churn", type=float, default=0.0, help="steps per second")
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(2, "json", nowhere)  # as a server logs, but for the terminal or disk at the end of it
        asyncio.run(main(parser.parse_args()))
