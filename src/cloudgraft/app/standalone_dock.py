"""Runs a dock in a process without an engine: its port, its admin socket, and the reload of its file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cloudgraft.admin.server import AdminServer
from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.reload import Signature, watching
from cloudgraft.app.wiring import admin_place
from cloudgraft.config import Config
from cloudgraft.sdk.errors import CloudgraftError

log = logging.getLogger("cloudgraft.dock")


class DockAlone:
    """Runs a :class:`DockLink` where there is no engine."""

    def __init__(
        self, path: Path, config: Config, link: DockLink, load: Callable[[], Config], *, seen: Signature
    ) -> None:
        """``load`` reads the file again; ``seen`` is its signature when it was first read.

        Raises ConfigError for an admin address that cannot be used.
        """
        self._path = path
        self._place = admin_place(config)
        self._link = link
        self._load = load
        self._seen = seen

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._link.running())
            admin = AdminServer(self._link.methods(), self._place)
            await admin.start()
            stack.push_async_callback(admin.stop, 1.0)
            await stack.enter_async_context(watching(self._path, self._reload, seen=self._seen))
            yield

    async def _reload(self) -> None:
        """Applies allowed clients and machine classes. An invalid file changes nothing."""
        try:
            config = await asyncio.to_thread(self._load)
        except CloudgraftError as error:
            log.warning("%s is not valid, and the old configuration stays: %s", self._path.name, error)
        else:
            self._link.replace(config.dock)
            log.info("the configuration was read again")
