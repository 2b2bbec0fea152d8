"""Runs a dock without an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CollectorRegistry

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.wiring import DockAlone
from cloudgraft.config import Config
from cloudgraft.config.sections.dock import Dock
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.serve import settle


def check_section(config: Config) -> None:
    """Raises ConfigError with the problems of the dock in a file that has others too."""
    if config.dock is not None:
        DockLink(config, config.dock, for_engines=True)
    elif config.where().document.find(("dock",)) is None:
        section_of(config)


def section_of(config: Config) -> Dock:
    """The section of the file; raises an error when there is none."""
    if config.dock is None:
        raise config.where().error("has no section dock", "write one: it says who may dial in, and where")
    return config.dock


@asynccontextmanager
async def parts(
    config: Config, alone: DockAlone, registry: CollectorRegistry, listeners: ListenerMetrics
) -> AsyncIterator[None]:
    """Runs the dock, and metrics and health beside it, while the block lasts."""
    phase = "starting"
    async with AsyncExitStack() as stack:
        if config.server.ops is not None:
            ops = OpsServer(config.server.ops, registry, lambda: phase, listeners)
            await stack.enter_async_context(ops.running())
        await stack.enter_async_context(alone.running())
        phase = ""
        settle()
        yield
        phase = "stopping"
