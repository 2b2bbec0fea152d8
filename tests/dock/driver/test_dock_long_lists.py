"""A dock that runs elsewhere, and long answers: neither its own loop nor that of the engine is held up by them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.hub.engine_service import EngineService
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.listener import DockListener
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Key, Operation
from cloudgraft.sdk.driver import DriverTraits, Machine, Price, Shape
from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.wire import driver as wire
from tests.dock.driver.connected_driver import OneClass, TokenAccess, dock_options

MANY = 5000
IN_A_ROW = 500
ANSWERS: dict[Verb, list[Any]] = {
    Verb.LIST: [Machine(name=f"m-{n}", machine_id=str(n), tags={"a": "b"}) for n in range(MANY)],
    Verb.SHAPES: [Shape(name=f"s-{n}", capacity={"cpu": Quantity("2")}) for n in range(MANY)],
    Verb.PRICES: [Price(shape=f"s-{n}", hourly=Decimal("0.5"), currency="EUR") for n in range(MANY)],
}
CONVERSIONS = ("machine_to_pb", "machine_from_pb", "shape_to_pb", "shape_from_pb", "price_to_pb", "price_from_pb")


class Fleet(Hub):
    """A hub whose drivers answer at once."""

    def __init__(self) -> None:
        super().__init__(access=TokenAccess(), classes=OneClass())
        self.answers: dict[Verb, Answer] = dict(ANSWERS)

    async def call(self, key: Key, operation: Operation) -> Answer:
        return self.answers[operation.verb]

    def info(self, key: Key) -> DriverInfo:
        return DriverInfo(key=key, protocol="v1", traits=DriverTraits())


class Rows:
    """How many machines, shapes or prices were converted before others had their turn."""

    def __init__(self) -> None:
        self.total = self.longest = self._current = 0

    def counting(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(one: Any) -> Any:
            self.total += 1
            self._current += 1
            self.longest = max(self.longest, self._current)
            return convert(one)

        return counted

    async def others(self) -> None:
        while True:
            self._current = 0
            await asyncio.sleep(0)


@asynccontextmanager
async def engine_of(fleet: Fleet) -> AsyncIterator[DockDriver]:
    """An engine's cloud, over a socket."""
    access = TokenAccess()
    service = EngineService(fleet, OneClass(), access)
    listener = DockListener([service.handler()], listen="127.0.0.1:0", tls=None, settings=HubSettings(), access=access)
    await listener.open()
    cloud = DockDriver(dock_options(address=listener.address))
    try:
        await cloud.start()
        yield cloud
    finally:
        await cloud.close()
        await listener.close(0)


@pytest.mark.parametrize("verb", ANSWERS, ids=lambda verb: verb.value)
async def test_others_have_their_turn_while_a_long_answer_is_written_and_read(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows()
    for name in CONVERSIONS:
        monkeypatch.setattr(wire, name, rows.counting(getattr(wire, name)))
    async with engine_of(Fleet()) as cloud:
        others = asyncio.create_task(rows.others())
        found = await getattr(cloud, verb.value)()
        others.cancel()
    assert found == ANSWERS[verb]
    assert rows.total == 2 * MANY
    assert rows.longest <= IN_A_ROW


async def test_an_answer_of_something_else_is_none_wherever_in_it_that_is() -> None:
    fleet = Fleet()
    fleet.answers[Verb.LIST] = [*ANSWERS[Verb.LIST] * 2, ANSWERS[Verb.PRICES][0]]
    async with engine_of(fleet) as cloud:
        with pytest.raises(InternalError, match="not one of Machine"):
            await cloud.list()


async def test_an_answer_with_nothing_in_it_is_one() -> None:
    fleet = Fleet()
    fleet.answers = dict.fromkeys(ANSWERS, ())
    async with engine_of(fleet) as cloud:
        assert [list(await cloud.list()), list(await cloud.shapes()), list(await cloud.prices())] == [[], [], []]
