"""Holds the drivers of one run and everything that the run made."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.driver.denials import Denials
from cloudgraft.conformance.driver.room import Room
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.report import Exchange
from cloudgraft.sdk.blocking import as_driver, author_class
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, RateLimitedError, UnavailableError

# -- calls -------------------------------------------------------------------------------------------------------------
# Each call has a time limit and is recorded.


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
    """The machine as the engine knows it after a restart: with the journal's fields only, not the driver's object."""
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


# -- names and tags ----------------------------------------------------------------------------------------------------
# As the engine forms them, different in each run.


CLUSTER_ID = "cloudgraft-cluster-id"
LONGEST_GROUP = 1024  # characters of a group's id
_CLUSTER = "conformance-kit1"  # as long as a cluster's part of a name can be
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one run, which is a cluster of its own for the cloud."""

    cluster_id: str = field(default_factory=lambda: _random(10))

    @property
    def prefix(self) -> str:
        """The beginning of every name."""
        return f"{_CLUSTER}-{self.cluster_id}-"

    def new_name(self, group: str = "pool") -> str:
        """A name as long as the engine's longest, for a group with a long id."""
        slug = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")[:16].rstrip("-") or "x"
        digest = hashlib.sha256(group.encode()).hexdigest()[:8]
        return f"{self.prefix}{slug}-{digest}-{_random(8)}"

    def tags(self, name: str, group: str) -> Mapping[str, str]:
        """The engine's marks of a machine."""
        return {
            "cloudgraft-cluster": _CLUSTER,
            CLUSTER_ID: self.cluster_id,
            "cloudgraft-group": group,
            "cloudgraft-name": name,
        }

    def is_ours(self, machine: Machine) -> bool:
        """Whether this run made it, even if the driver got its name or its tags wrong."""
        values = machine.tags.values() if isinstance(machine.tags, Mapping) else ()
        return any(self.cluster_id in str(text).lower() for text in (machine.name, *values))

    @staticmethod
    def is_of_some_run(machine: Machine) -> bool:
        """Whether another run of the kit made it, perhaps one that goes on at the same time."""
        return str(machine.name).startswith(_CLUSTER)


# -- drivers of a run --------------------------------------------------------------------------------------------------
# Drivers are opened when needed. All are closed, and all machines deleted, in any case.


log = logging.getLogger("cloudgraft.conformance")

PASSING = (DeadlineError, RateLimitedError, UnavailableError)  # the cloud may answer the next call
_MARGIN = 0.05  # seconds: a cloud's clock is not ours
_CLOSE = 5.0  # seconds
_STEP = 0.1  # seconds between two lists


@dataclass(eq=False)
class OneDriver:
    """A started driver with the checks that use it, and the list that they wait for together."""

    calls: Calls
    users: int = 0
    is_harmed: bool = False  # closed when its last user is done, and not used again
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one list at a time
    listed: tuple[float, Sequence[Machine], Exchange] | None = None  # the last one: when it began, what it showed


class DriverUnderTest:
    """Holds the drivers of one run. Each machine is recorded here before it is created."""

    def __init__(
        self, make_driver: Callable[[], AnyDriver], settings: DriverSettings, marks: Marks, *, name: str = ""
    ) -> None:
        """``make_driver`` is called again after a check that may have harmed the driver. ``name`` is for the report."""
        self.settings = settings
        self.marks = marks
        self.name = name  # by default that of the author's class
        self.raw: AnyDriver | None = None  # the author's own object
        self.last_create = 0.0  # when the last one ended, or was given up
        self.last_delete = 0.0
        self.open_creates = 0  # calls with an unknown outcome
        self.made: dict[str, Machine] = {}  # by machine id: answers of create that are not deleted yet
        self.room = Room(settings.most_machines)
        self.denials = Denials()
        self._make_driver = make_driver
        self._shared: OneDriver | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def driver(self, exchanges: list[Exchange], *, own: bool = False) -> AsyncIterator[OneDriver]:
        """A started driver: the one that checks share, or one of the check's own, which may harm it."""
        async with self._starting:
            one = None if own else self._shared
            if one is None:
                one = OneDriver(await self.fresh(exchanges), is_harmed=own)
                self._shared = self._shared if own else one
            one.users += 1
        try:
            yield one
        finally:
            one.users -= 1
            if one.is_harmed and not one.users:
                await shut(one.calls)

    def harmed(self, one: OneDriver) -> None:
        """Gives the checks that come a new driver. This one is closed when its last user is done."""
        one.is_harmed = True
        if self._shared is one:
            self._shared = None

    async def together(self, one: OneDriver, since: float, exchanges: list[Exchange]) -> Sequence[Machine]:
        """A list that begins at that moment or later. Checks that wait at the same time share it."""
        async with one.turn:
            if one.listed is None or one.listed[0] < since:
                own: list[Exchange] = []
                began = time.monotonic()
                try:
                    machines = await self.wrapped(one.calls, own).list()
                finally:
                    exchanges += own
                one.listed = began, machines, own[-1]
            else:
                exchanges.append(one.listed[2])
        return one.listed[1]

    async def fresh(self, exchanges: list[Exchange]) -> Calls:
        """One more driver, started. The caller closes it."""
        calls = self.unstarted(exchanges)
        try:
            await calls.start()
        except BaseException:
            await shut(calls)
            raise
        return calls

    def unstarted(self, exchanges: list[Exchange], made: AnyDriver | None = None) -> Calls:
        """One more driver, or this one, as it is."""
        raw = self._make_driver() if made is None else made
        if made is None:
            self.raw, self.name = raw, self.name or author_class(raw).__name__
        return Calls(as_driver(raw), self.settings.call_timeout.total_seconds(), exchanges)

    def wrapped(self, calls: Calls, exchanges: list[Exchange]) -> Calls:
        """The same driver with another list of recorded calls."""
        return Calls(calls.driver, self.settings.call_timeout.total_seconds(), exchanges)

    async def retire(self) -> None:
        """Closes the shared driver."""
        if self._shared is not None:
            one, self._shared = self._shared, None
            await shut(one.calls)

    # -- cleaning up ---------------------------------------------------------------------------------------------------

    async def tidy(self, calls: Calls, machines: Sequence[Machine]) -> None:
        """Deletes what a check made, without waiting for it to be gone."""
        left = [machine for machine in machines if machine.machine_id in self.made]
        await self._delete(self.wrapped(calls, []), left)

    async def sweep(self) -> Sequence[str]:
        """Deletes everything that the run made, and returns what is left. Closes the driver."""
        left: Sequence[str] = ()
        if self.last_create:
            left = await self._swept()
        await self.retire()
        return left

    async def _swept(self) -> Sequence[str]:
        patience = self.settings.patience.total_seconds()
        alive: Sequence[Machine] = list(self.made.values())
        calls: Calls | None = None
        try:
            calls = self._shared.calls if self._shared is not None else await self.fresh([])
            late = self.settings.late.total_seconds() if self.open_creates and self.settings.is_lasting else 0.0
            settled = certain_after(self.last_create, calls) + late
            async with asyncio.timeout(max(0.0, settled - time.monotonic()) + patience):
                await self._delete(calls, alive)
                while True:
                    began = time.monotonic()
                    with contextlib.suppress(*PASSING):  # asked again until the time is over
                        alive = await self._alive(calls)
                        if not alive and began >= settled:
                            return ()
                        await self._delete(calls, alive)
                    await asyncio.sleep(_STEP)
        except Exception as error:  # noqa: BLE001 - whatever it is: these are left, and reported
            log.warning("could not clean up: %s: %s", type(error).__name__, error)
            return sorted(f"{machine.name} ({machine.machine_id})" for machine in alive)
        finally:
            if calls is not None and self._shared is None:
                await shut(calls)

    async def _alive(self, calls: Calls) -> list[Machine]:
        listed = [machine for machine in await calls.list() if self.marks.is_ours(machine)]
        alive = [machine for machine in listed if machine.state is not MachineState.DELETING]
        # Where a list need not show everything, the answers of create() count too.
        return alive if calls.driver.traits.complete_list else [*alive, *self.made.values()]

    async def _delete(self, calls: Calls, machines: Sequence[Machine]) -> None:
        done = await asyncio.gather(*(calls.delete(machine) for machine in machines), return_exceptions=True)
        if machines:
            self.last_delete = time.monotonic()
        for machine, outcome in zip(machines, done, strict=True):
            if not isinstance(outcome, BaseException):
                self.made.pop(machine.machine_id, None)


def certain_after(moment: float, calls: Calls) -> float:
    """The time from which on a list must show calls that had ended at that moment."""
    delay = calls.driver.traits.list_delay.total_seconds()
    return moment + delay + _MARGIN if delay else moment


async def shut(calls: Calls) -> None:
    """Closes a driver, and ignores its errors."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE):
            await calls.driver.close()
