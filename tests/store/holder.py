"""A process of its own that does something with a journal, for tests that end it or starve it.

python holder.py hold PATH    opens it, writes machine "held", says "ready", and waits to be killed
python holder.py starve PATH  writes until its files may not grow, is given room again, and goes on; tells it in JSON
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.sql import SqlJournal
from tests.store.places import change, machine


async def hold(path: Path) -> None:
    journal = SqlJournal.sqlite(path)
    await journal.open()
    await journal.write(change(machine("held")))
    print("ready", flush=True)
    await asyncio.Event().wait()


async def starve(path: Path) -> None:
    journal = SqlJournal.sqlite(path)
    await journal.open()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    written, errors = 0, list[dict[str, object]]()
    while not errors:
        try:
            await journal.write(change(*(machine(f"m-{written}-{number}") for number in range(20))))
            written += 1
        except JournalUnavailableError as error:
            errors.append({"message": str(error), "ambiguous": error.is_ambiguous})
    while_full = len((await journal.load()).machines)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await journal.write(change(machine("after")))
    afterwards = len((await journal.load()).machines)
    await journal.close()
    print(json.dumps({"written": written * 20, "errors": errors, "full": while_full, "afterwards": afterwards}))


if __name__ == "__main__":
    asyncio.run({"hold": hold, "starve": starve}[sys.argv[1]](Path(sys.argv[2])))
