"""What the processes of the dock's benchmark do alike: a line of JSON in, a line of JSON out.

Standard library only, so that it weighs nothing in their memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any


async def obey(first: dict[str, Any], command: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
    """Tells ``first``, then does what each line says and tells how it went, until the input ends.

    It also ends when whoever started this process is killed: nothing is left behind.
    """
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _tell(first)
    while line := await reader.readline():
        _tell(await command(json.loads(line)))


def settle() -> None:
    """What ``cloudgraft serve`` does once it is up, for the bare server and the clients: then all are alike in it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 10, 1000)
    sys.setswitchinterval(0.001)


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)
