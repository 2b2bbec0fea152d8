"""A configuration file that is looked at while a server runs: what is done on SIGHUP, and when the file changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

__all__ = ["Signature", "signature", "watching"]

_EVERY = 2.0  # seconds between two looks at the file
Signature = tuple[int, ...]


def signature(path: Path) -> Signature:
    """Differs when the file was changed or exchanged; a mounted ConfigMap is exchanged by its link."""
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, and all at once
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


@contextlib.asynccontextmanager
async def watching(path: Path, reload: Callable[[], Awaitable[None]], *, seen: Signature) -> AsyncIterator[None]:
    """Calls ``reload`` for as long as the block lasts; ``seen`` is how the file was when it was read before."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, told.set)
    task = asyncio.create_task(_watch(path, reload, seen, told), name="configuration")
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        task.cancel()
        await asyncio.wait({task})


async def _watch(path: Path, reload: Callable[[], Awaitable[None]], seen: Signature, told: asyncio.Event) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EVERY):
                await told.wait()
        found = await asyncio.to_thread(signature, path)
        if found != seen or told.is_set():
            seen = found
            told.clear()
            await reload()
