"""The engine that is measured, as a process: ``python -m bench.engine_server --journal FILE --groups N ...``.

What ``cloudgraft serve`` runs, with a watchdog on the event loop. It first prints a line of JSON with its address, and
then one for each line that it reads: what it has done since the line before. It ends when its input does.
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
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from bench.engine_fleet import CLOUD, blueprint, group_names
from bench.watchdog import Watchdog
from cloudgraft.cli import logs
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.server.serve import ServeOptions, running, settle_memory
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Change
from cloudgraft.store.sql import SqlJournal
from cloudgraft.store.sqlite import SqliteDatabase

_AT_A_TIME = 5  # machines that one step of the churn asks for
_STEPS_LATER = 20  # they are deleted again


class CountingJournal(SqlJournal):
    """The journal, which knows how much was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteDatabase(path))
        self.transactions = self.records = self.happened = 0

    async def write(self, change: Change) -> None:
        """Counts a transaction, and makes it."""
        self.transactions += 1
        self.records += len(change.machines)
        self.happened += len(change.events)
        await super().write(change)


class SilentDriver(Driver):
    """A cloud that never answers: whatever an engine does at its start, it does without it (law 1)."""

    async def create(self, spec: MachineSpec) -> Machine:
        """Never."""
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never returns

    async def delete(self, machine: Machine) -> None:
        """Never."""
        await asyncio.get_running_loop().create_future()

    async def list(self) -> Sequence[Machine]:
        """Never."""
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never returns


async def main(options: argparse.Namespace) -> None:
    """Serves, works and answers until its input ends."""
    journal = CountingJournal(options.journal)
    plan = blueprint(options.groups, _driver(options.cloud), timedelta(seconds=options.observe_every))
    engine = Engine(plan, journal)
    provider = EngineProvider(engine)
    began = time.perf_counter()
    options_ = ServeOptions(listen="127.0.0.1:0")
    async with running(provider, options_, trouble=engine.trouble, gate=engine.check_leader) as server:
        seconds = time.perf_counter() - began
        settle_memory()
        _tell({"address": server.address, "seconds": seconds})
        watchdog = Watchdog()
        tasks = [asyncio.create_task(watchdog.watch())]
        if options.churn:
            tasks.append(asyncio.create_task(churn(provider, options.groups, options.churn)))
        lines = await _lines_of_input()
        while await lines.readline():
            caller = engine.workers[CLOUD].caller
            done = {
                "lists": caller.ended["list", "ok"],
                "creates": caller.ended["create", "ok"],
                "deletes": caller.ended["delete", "ok"],
                "transactions": journal.transactions,
                "records": journal.records,
                "events": journal.happened,
            }
            _tell({**done, **watchdog.take()})
        for task in tasks:
            task.cancel()


async def churn(provider: EngineProvider, groups: int, steps_per_second: float) -> None:
    """Asks for machines in one group after another, and deletes those that it asked for a while ago."""
    names = group_names(groups)
    old = {instance.id for name in names for instance in await provider.instances(name)}
    grown: deque[str] = deque()
    for name in itertools.cycle(names):
        await provider.increase_size(name, _AT_A_TIME)
        grown.append(name)
        if len(grown) > _STEPS_LATER:
            back = grown.popleft()
            instances = await provider.instances(back)
            spare = [one for one in instances if one.id not in old and one.state is InstanceState.RUNNING]
            await provider.delete_nodes(back, [NodeRef(name=one.id, provider_id=one.id) for one in spare])
        await asyncio.sleep(1 / steps_per_second)


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
