"""Connects to the server of a run, and waits until it serves the group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Final

from cloudgraft.client import Address, CloudConfig, RemoteProvider
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.torture.private_config import Paths

_CALLS: Final = timedelta(seconds=20)  # of an autoscaler that does not mind a slow machine
_LOOK_AGAIN: Final = 0.1  # seconds


def connect(paths: Paths) -> RemoteProvider:
    """A client of the server; it need not serve yet."""
    address = Address.parse(f"unix:{paths.socket}")
    return RemoteProvider.connect(CloudConfig(address=address, grpc_timeout=_CALLS))


async def until_served(provider: RemoteProvider, group: str, paths: Paths, patience: float) -> None:
    """Waits until calls are answered: at a first start, the cloud is listed before. Raises UnavailableError."""
    give_up_at = time.monotonic() + patience
    while True:
        try:
            groups = await provider.node_groups()
        except UnavailableError:
            if time.monotonic() >= give_up_at:
                raise
        else:
            if any(one.id == group for one in groups):
                return
            if time.monotonic() >= give_up_at:
                raise UnavailableError(f"the server does not serve group {group}: {last_log(paths)}")
        await asyncio.sleep(_LOOK_AGAIN)


def last_log(paths: Paths) -> str:
    """The last line of the servers' log."""
    with contextlib.suppress(OSError):
        lines = paths.log.read_text("utf-8", "replace").splitlines()
        return lines[-1][:500] if lines else "it logged nothing"
    return "there is no log"
