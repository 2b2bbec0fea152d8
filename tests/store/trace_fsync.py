"""Watches the system calls of a journal: the disk has a change before it is answered. Needs strace; no part of pytest.

    python -m tests.store.trace_fsync

Between the last write to the write-ahead log and the answer there must be an fdatasync of that log, and nothing may be
written to it in between. Exit code 1 when it is not so.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cloudgraft.store.sql import SqlJournal
from tests.store.places import change, machines

_WRITES = 5


async def write(path: Path) -> None:
    journal = SqlJournal.sqlite(path)
    await journal.open()
    for number in range(_WRITES):
        await journal.write(change(*machines(100, prefix=f"m-{number}")))
        os.write(2, b"answered\n")
    await journal.close()


def main() -> int:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        path, trace = Path(directory, "journal.db"), Path(directory, "trace")
        calls = "trace=write,pwrite64,fsync,fdatasync"
        subprocess.run(
            [
                "strace",
                "-f",
                "-y",
                "-e",
                calls,
                "-o",
                trace,
                sys.executable,
                "-m",
                "tests.store.trace_fsync",
                str(path),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        lines = trace.read_text().splitlines()
    answers = [index for index, line in enumerate(lines) if '"answered' in line]
    assert len(answers) == _WRITES, "the trace lacks answers"
    for number, (start, end) in enumerate(zip([0, *answers], answers, strict=False), start=1):
        calls_before = [line for line in lines[start:end] if "journal.db-wal" in line]
        synced = [bool(re.search(r"(fdatasync|fsync)\(", line)) for line in calls_before]
        if not synced or not synced[-1]:
            print(f"answer {number} came before the write-ahead log was on the disk", *calls_before[-3:], sep="\n")
            return 1
        print(f"answer {number}: {len(synced) - sum(synced)} writes to the log, {sum(synced)} fsync, then the answer")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(write(Path(sys.argv[1])))
    else:
        sys.exit(main())
