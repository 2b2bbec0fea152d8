"""A driver that lists its cloud, as a process: ``python -m bench.clouds_driver OPTIONS``, which are JSON.

For each line that it reads it makes one list, as the engine does, and tells what that took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.dock_child import obey, settle
from bench.watchdog import Watchdog
from cloudgraft.config import Where, parse_options
from cloudgraft.plugins.registry import Kind, find
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.driver import Driver
from cloudgraft.validation.document import Document


def make_driver(section: dict[str, Any]) -> Driver:
    """From a cloud's section of a configuration file."""
    cls: Any = find(Kind.DRIVER, section["driver"]).load()
    where = Where(document=Document.without_file("options"), base_dir=Path("/"), path=())
    options = parse_options(cls.Options, {key: value for key, value in section.items() if key != "driver"}, where)
    return as_driver(cls(options))


async def main(section: dict[str, Any]) -> None:
    """Lists until its input ends."""
    driver = make_driver(section)
    await driver.start()
    watchdog = Watchdog()
    watching = asyncio.create_task(watchdog.watch())

    async def command(_given: dict[str, Any]) -> dict[str, Any]:
        watchdog.take()
        began, used = time.perf_counter(), time.process_time()
        machines = await driver.list()
        cpu, wall = time.process_time() - used, time.perf_counter() - began
        await asyncio.sleep(0.01)  # the last stall is noted when it is over
        stalls = watchdog.take()
        ours = sum(bool(machine.tags.get("cloudgraft-cluster-id")) for machine in machines)
        return {"machines": len(machines), "ours": ours, "cpu": cpu, "wall": wall, **stalls}

    await command({})  # logins, connections, what is read once
    settle()
    try:
        await obey({}, command)
    finally:
        watching.cancel()
        await driver.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
