"""A process of its own that reserves, for tests that race several of them or kill one.

python rival.py race WHERE NAME COUNT   says "ready", waits for a line, then reserves one cpu after another in cluster
                                        "a"; confirms every second one; tells in JSON how many it got
python rival.py die WHERE NAME WHEN     is gone (kill -9) just before or just after the COMMIT of a reservation
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from sqlalchemy import Connection, RootTransaction

from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import DeadlineError, OutOfStockError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.databases.database import Database

_ONE = {"cpu": Quantity(1)}


def _database(where: str) -> Database:
    return Discovery.postgresql(where) if where.startswith("postgresql://") else Discovery.sqlite(Path(where))


async def race(where: str, name: str, count: int) -> None:
    discovery = Discovery(_database(where))
    await discovery.open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    got = refused = 0
    for number in range(count):
        while True:
            try:
                found = await discovery.reserve("a", _ONE, owner=f"{name}/m-{number}", seconds=600)
                if number % 2:
                    await discovery.confirm(found.id)
            except OutOfStockError:
                refused += 1
            except (UnavailableError, DeadlineError):
                continue
            else:
                got += 1
            break
    await discovery.close()
    print(json.dumps({"got": got, "refused": refused}))


async def die(where: str, name: str, when: str) -> None:
    database = _database(where)
    discovery = Discovery(database)
    await discovery.open()
    commit = database._commit

    def fatal(connection: Connection, transaction: RootTransaction) -> None:
        if when == "after":
            commit(connection, transaction)
        os.kill(os.getpid(), signal.SIGKILL)

    database._commit = fatal  # type: ignore[method-assign]  # a trap, in a process that ends in it
    await discovery.reserve("a", _ONE, owner=f"{name}/m", seconds=600)


if __name__ == "__main__":
    what, where_, name_, last = sys.argv[1:]
    asyncio.run(race(where_, name_, int(last)) if what == "race" else die(where_, name_, last))
