"""Calls to a driver, each limited in time and written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.contain import contained
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["Calls", "known"]

T = TypeVar("T")
_LONGEST = 600  # characters of what was sent or answered
_SHOWN = 4  # machines of a list


class Calls:
    """The driver's own methods; an error of the sdk comes through, anything else is a :class:`Violation`."""

    def __init__(self, driver: Driver, seconds: float, exchanges: list[Exchange]) -> None:
        """``seconds`` is for each call."""
        self.driver = driver
        self._seconds = seconds
        self._exchanges = exchanges

    async def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""
        return await self._call("create", f"{spec.name}, tags {dict(spec.tags)}", lambda: self.driver.create(spec))

    async def delete(self, machine: Machine) -> None:
        """See :meth:`Driver.delete`."""
        sent = f"{machine.name}, machine_id {machine.machine_id}"
        await self._call("delete", sent, lambda: self.driver.delete(machine))

    async def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""
        return await self._call("list", "", self.driver.list)

    async def shapes(self) -> Sequence[Shape]:
        """See :meth:`Driver.shapes`."""
        return await self._call("shapes", "", self.driver.shapes)

    async def prices(self) -> Sequence[Price]:
        """See :meth:`Driver.prices`."""
        return await self._call("prices", "", self.driver.prices)

    async def start(self) -> None:
        """See :meth:`Driver.start`."""
        await self._call("start", "", self.driver.start)

    async def close(self) -> None:
        """See :meth:`Driver.close`."""
        await self._call("close", "", self.driver.close)

    async def _call(self, verb: str, sent: str, call: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                answer = await contained(call())
        except asyncio.CancelledError:
            self._note(verb, sent, "given up by the kit", began, is_failed=True)
            raise
        except CloudgraftError as error:
            self._note(verb, sent, f"{type(error).__name__}: {error}", began, is_failed=True)
            raise
        except Exception as error:
            is_late = limit.expired()
            what = f"did not end within {self._seconds:g} s" if is_late else f"raised {type(error).__name__}: {error}"
            self._note(verb, sent, what, began, is_failed=True)
            advice = "" if is_late else "; raise an error of cloudgraft.sdk.errors"
            raise Violation(f"{verb}() {what}{advice}") from error
        self._note(verb, sent, _shown(answer), began, is_failed=False)
        return answer

    def _note(self, verb: str, sent: str, answered: str, began: float, *, is_failed: bool) -> None:
        seconds = time.monotonic() - began
        self._exchanges.append(
            Exchange(rpc=verb, sent=sent[:_LONGEST], answered=answered[:_LONGEST], seconds=seconds, is_failed=is_failed)
        )


def known(machine: Machine) -> Machine:
    """The machine as the engine knows it after a restart: what its journal keeps, and no object of the driver's own."""
    tags = dict(machine.tags) if isinstance(machine.tags, Mapping) else {}
    return Machine(name=machine.name, machine_id=machine.machine_id, provider_id=machine.provider_id, tags=tags)


def _shown(answer: object) -> str:
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        more = f" and {len(answer) - _SHOWN} more" if len(answer) > _SHOWN else ""
        return f"{len(answer)}: " + ", ".join(_one(item) for item in answer[:_SHOWN]) + more
    return _one(answer)


def _one(item: object) -> str:
    if not isinstance(item, Machine):
        return "" if item is None else repr(item)
    state = getattr(item.state, "name", item.state)
    return f"{item.name} ({item.machine_id}, {state}, {item.provider_id})"
