"""Serves gRPC's health service from the current state of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from grpc_health.v1 import health, health_pb2

log = logging.getLogger("cloudgraft.server")

_LOOK_EVERY: Final = 1.0  # seconds; only for Watch: Check is answered from the current state


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # the package has no types
    """SERVING while ``trouble`` is empty, else NOT_SERVING; NOT_SERVING for good after ``enter_graceful_shutdown``."""

    def __init__(self, names: Sequence[str], trouble: Callable[[], str] | None) -> None:
        """Answers for these services; without ``trouble`` they are always SERVING."""
        super().__init__()
        self._names = names
        self._trouble = trouble
        self._usable: bool | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to notify watchers."""
        await self._update()
        if self._trouble is not None:
            self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """NOT_SERVING from now on."""
        if self._following is not None:
            self._following.cancel()
        await self.enter_graceful_shutdown()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Answers with the current state, not with that of the last check."""
        await self._update()
        return await super().Check(request, context)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._update()

    async def _update(self) -> None:
        usable = self._is_usable()
        if usable is self._usable:
            return
        self._usable = usable
        states = health_pb2.HealthCheckResponse
        for name in self._names:
            await self.set(name, states.SERVING if usable else states.NOT_SERVING)

    def _is_usable(self) -> bool:
        try:
            return not (self._trouble and self._trouble())
        except Exception:
            if self._usable is not False:  # once, not at every check
                log.exception("the check whether the server can be used failed: it counts as unusable")
            return False
