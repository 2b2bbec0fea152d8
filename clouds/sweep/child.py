"""The process under test: a real engine on a real journal with the driver of a real cloud, driven by lines of JSON.

``python -m clouds.sweep.child ORDER``, where ORDER is JSON: see :class:`clouds.sweep.life.Order`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import load
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.sql import SqlJournal
from clouds.sweep.requests_trapped import set_traps
from tests.crash.points import Point, Trap
from tests.crash.trapped import TrappedDatabase, TrappedDriver

__all__ = ["main"]

_GROUP = "judged"


class Child:
    """One life of the engine."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._trap = Trap(order["phase"], Point(*order["point"]) if order["point"] else None)
        set_traps(order["driver"], self._trap)
        plan = _trapped(desired_state(load(Path(order["config"]))), self._trap)
        self._engine = Engine(plan, SqlJournal(TrappedDatabase(Path(order["journal"]), self._trap)))
        self._provider = EngineProvider(self._engine)

    async def serve(self) -> None:
        """Answers until its input ends."""
        await self._provider.start()
        _say({"up": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            _say(await self._answer(json.loads(line)))
        await self._provider.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["ask"]:
            case "enter":
                self._trap.enter(request["phase"])
            case "grow":
                await self._provider.increase_size(_GROUP, request["delta"])
            case "delete":
                await self._provider.delete_nodes(_GROUP, [NodeRef(provider_id=one) for one in request["ids"]])
            case "passed":
                passed = self._trap.passed().items()
                return {"passed": [[*dataclasses.astuple(point), times] for point, times in passed]}
        groups = await self._provider.node_groups()
        target = await self._provider.target_size(_GROUP) if groups else None  # its cloud has not told its shapes yet
        machines = [
            {"name": one.name, "state": one.state.value, "id": one.provider_id or one.placeholder}
            for one in self._engine.fleet.machines.values()
        ]
        return {"target": target, "machines": machines}


def _trapped(plan: DesiredState, trap: Trap) -> DesiredState:
    def made(make: Callable[[], Driver]) -> Callable[[], Driver]:
        return lambda: TrappedDriver(make(), trap)

    clouds = {name: dataclasses.replace(cloud, make=made(cloud.make)) for name, cloud in plan.clouds.items()}
    return dataclasses.replace(plan, clouds=clouds)


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serves until its input ends, or it is killed."""
    order = json.loads(sys.argv[1])
    logging.basicConfig(filename=order["log"], level=logging.INFO, format=f"{order['phase']} %(levelname)s %(message)s")
    asyncio.run(Child(order).serve())


if __name__ == "__main__":
    main()
