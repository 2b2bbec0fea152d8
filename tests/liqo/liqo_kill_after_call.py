"""Ends a driver's work after a chosen call, as ``kill -9`` does: nothing of it runs on, nothing is cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

import pytest

from cloudgraft.kube.api import Api, Call
from cloudgraft.liqo import driver as driver_module
from cloudgraft.liqo.peering import peering as peering_module
from cloudgraft.sdk.driver import Machine, MachineSpec
from tests.liqo.liqo_world import World

KINDS_OF_CALLS = ("search", "reserve", "confirm", "release", "reservations", "clusters", "credentials")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """When to fall: ``after`` so many calls, ``before`` one with that word is sent, or so many ``past`` it."""

    after: int = 0
    before: str = ""
    past: tuple[str, int] = ("", 0)


class KillAfterCall:
    """Counts all calls that a driver makes, to whomever; at the chosen one it stands still for ever.

    A look that was had before is not counted: it changes nothing, and how often one is had is a matter of speed.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.calls: list[str] = []
        self.has_fallen = asyncio.Event()

    async def about_to(self, what: str) -> None:
        """A call is made next."""
        if self._order.before and self._order.before in what:
            self.has_fallen.set()
        await self._stand_still()

    async def passed(self, what: str) -> None:
        """A call has just ended."""
        if "GET" not in what or what not in self.calls:
            self.calls.append(what)
            if len(self.calls) == self._order.after or self._is_past():
                self.has_fallen.set()
        await self._stand_still()

    def _is_past(self) -> bool:
        word, count = self._order.past
        at = next((number for number, call in enumerate(self.calls) if word in call), None) if word else None
        return at is not None and len(self.calls) - at > count

    async def _stand_still(self) -> None:
        if self.has_fallen.is_set():
            await asyncio.Event().wait()

    def watch(self, client: Any, side: str) -> Any:
        api: Api = client._api
        original = api.call

        async def call(call: Call) -> bytes:
            what = f"{side}: {call.method} {call.path}"
            await self.about_to(what)
            answer = await original(call)
            await self.passed(what)
            return answer

        api.call = call  # type: ignore[method-assign]  # the only way to stand behind every single call
        return client


async def cut_down(world: World, wanted: MachineSpec, order: Order, patch: pytest.MonkeyPatch) -> KillAfterCall:
    """A create that dies where it is told to, or ends by itself when it does not come there."""
    blade = KillAfterCall(order)
    with patch.context() as here:
        here.setattr(driver_module, "Maintenance", _NoMaintenance)
        _watch(here, driver_module, "connect", blade, "consumer")
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


def _watch(here: pytest.MonkeyPatch, module: Any, name: str, blade: KillAfterCall, side: str) -> None:
    original = getattr(module, name)

    async def opened(*args: Any, **more: Any) -> Any:
        return blade.watch(await original(*args, **more), side)

    def opened_at_once(*args: Any, **more: Any) -> Any:
        return blade.watch(original(*args, **more), side)

    here.setattr(module, name, opened if iscoroutinefunction(original) else opened_at_once)


def _counted(original: Callable[..., Any], blade: KillAfterCall, name: str) -> Callable[..., Any]:
    async def call(*args: Any, **more: Any) -> Any:
        answer = await original(*args, **more)
        await blade.passed(f"discovery: {name}")
        return answer

    return call


class _NoMaintenance:
    """The calls of a maintenance would be counted too, and it runs beside."""

    def __init__(self, *_args: object, **_more: object) -> None:
        pass

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def is_ready(self, _name: str) -> bool:
        return True
