"""Ends a driver's work after a chosen call, as ``kill -9`` does: nothing of it runs on, nothing is cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cloudgraft.kube.api import Api, Call
from cloudgraft.liqo import driver as driver_module
from cloudgraft.liqo import peering as peering_module
from cloudgraft.sdk.driver import Machine, MachineSpec
from tests.liqo.liqo_world import World

KINDS_OF_CALLS = ("search", "reserve", "confirm", "release", "reservations", "clusters", "credentials")


class Guillotine:
    """Counts all calls that a driver makes, to whomever; after the chosen one it stands still for ever."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.calls: list[str] = []
        self.has_fallen = asyncio.Event()

    async def passed(self, what: str) -> None:
        """A call has just ended."""
        self.calls.append(what)
        if len(self.calls) == self.after:
            self.has_fallen.set()
        if self.has_fallen.is_set():
            await asyncio.Event().wait()

    def watch(self, client: Any, side: str) -> Any:
        api: Api = client._api
        original = api.call

        async def call(call: Call) -> bytes:
            answer = await original(call)
            await self.passed(f"{side}: {call.method} {call.path}")
            return answer

        api.call = call  # type: ignore[method-assign]  # the only way to stand behind every single call
        return client


async def cut_down(world: World, wanted: MachineSpec, after: int, patch: pytest.MonkeyPatch) -> Guillotine:
    """A create that dies after that many calls, or ends by itself when it makes fewer."""
    blade = Guillotine(after)
    with patch.context() as here:
        here.setattr(driver_module, "Keeper", _NoKeeper)
        _watch(here, driver_module, "_consumer_client", blade, "consumer")
        _watch(here, peering_module, "connect_foreign", blade, "provider")
        for name in KINDS_OF_CALLS:
            here.setattr(world.market, name, _counted(getattr(world.market, name), blade, name))
        driver = world.driver()
        await driver.start()
        making: asyncio.Task[Machine] = asyncio.create_task(driver.create(wanted))
        fallen = asyncio.create_task(blade.has_fallen.wait())
        await asyncio.wait([making, fallen], return_when=asyncio.FIRST_COMPLETED)
        for task in (making, fallen):
            task.cancel()
        await asyncio.gather(making, fallen, return_exceptions=True)
        await driver.close()
    return blade


def _watch(here: pytest.MonkeyPatch, module: Any, name: str, blade: Guillotine, side: str) -> None:
    original = getattr(module, name)
    here.setattr(module, name, lambda *args, **more: blade.watch(original(*args, **more), side))


def _counted(original: Callable[..., Any], blade: Guillotine, name: str) -> Callable[..., Any]:
    async def call(*args: Any, **more: Any) -> Any:
        answer = await original(*args, **more)
        await blade.passed(f"discovery: {name}")
        return answer

    return call


class _NoKeeper:
    """The calls of a keeper would be counted too, and it runs beside."""

    def __init__(self, *_args: object, **_more: object) -> None:
        pass

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def is_ready(self, _name: str) -> bool:
        return True
