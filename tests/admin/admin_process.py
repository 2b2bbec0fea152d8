"""An admin server as a process of its own, to be killed or stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudgraft.admin.server import AdminServer


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def pid(request: Mapping[str, object]) -> Mapping[str, object]:
    return {"pid": os.getpid()}


async def hang(request: Mapping[str, object]) -> Mapping[str, object]:
    say("hanging")
    await asyncio.Event().wait()
    return {}


async def main() -> None:
    server = AdminServer({"pid": pid, "hang": hang}, Path(sys.argv[1]))
    await server.start()
    say("serving")
    await asyncio.Event().wait()


asyncio.run(main())
