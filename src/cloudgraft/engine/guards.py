"""Limits the cost of machines and the number of deletions (law 10), counted from the journal and from lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from cloudgraft.engine.groups.specs import GuardLimits
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.states import may_cost
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.store.records import ErrorRecord, Event, MachineRecord, Presence, State

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A machine in a cloud's list that looks like ours and is not in the journal, as the guards count it."""

    machine_id: str
    created_at: float
    hourly: float


@dataclass(slots=True, kw_only=True)
class Tally:
    """The usage that counts against the guards of one cloud."""

    machines: int = 0  # existing, perhaps existing, or requested
    waiting: int = 0  # requested, no call made yet
    orders: int = 0  # calls to create in the last hour
    spend: float = 0.0  # of the last 24 hours, and of the next hour for all machines that exist or are requested

    @staticmethod
    def total(parts: Collection[Tally]) -> Tally:
        """The sum of several counts."""
        return Tally(
            machines=sum(part.machines for part in parts),
            waiting=sum(part.waiting for part in parts),
            orders=sum(part.orders for part in parts),
            spend=sum(part.spend for part in parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardUse:
    """The usage of one guard, for reports."""

    scope: str  # a cloud's name, or empty for all
    guard: str
    used: float
    limit: float
    unit: str = ""


def tally(records: Iterable[MachineRecord], strays: Iterable[Stray], now: float, *, wall: float | None = None) -> Tally:
    """Counts one cloud; ``records`` include machines that were gone within the last day.

    ``wall`` is the wall clock's time, where that differs from ``now``. Clouds charge by the wall clock, so the larger
    of both counts: after a lost journal and a wrong clock, the engine's clock may be hours behind.
    """
    total = Tally()
    wall = now if wall is None else wall
    for record in records:
        hourly = float(record.hourly or 0)
        if record.state is State.REQUESTED:
            total.machines += 1
            total.waiting += 1
            total.spend += hourly
        elif may_cost(record):
            total.machines += 1
            total.spend += hourly
        if record.attempt_at is not None and record.attempt_at > now - HOUR:
            total.orders += record.attempts
        total.spend += hourly * max(_hours_in_last_day(record, now), _hours_in_last_day(record, wall))
    for stray in strays:
        total.machines += 1
        total.orders += stray.created_at > now - HOUR
        total.spend += stray.hourly * (1 + min(DAY, max(0.0, max(now, wall) - stray.created_at)) / HOUR)
    return total


def tally_returned(records: Iterable[MachineRecord], now: float, *, wall: float | None = None) -> Tally:
    """Counts machines whose records are gone although the cloud still has them.

    The deletion of such a machine may have to wait. As far as we know, they cost since they counted as gone.
    """
    total, latest = Tally(), max(now, now if wall is None else wall)
    for record in records:
        gone_at = now if record.gone_at is None else record.gone_at
        total.machines += 1
        total.spend += float(record.hourly or 0) * (1 + min(DAY, max(0.0, latest - gone_at)) / HOUR)
    return total


def _hours_in_last_day(record: MachineRecord, now: float) -> float:
    if record.ordered_at is None:
        return 0.0
    is_over = record.presence is Presence.NONE and record.state is not State.CREATING
    if is_over and record.gone_at is None:
        end = record.state_since  # refused or deleted: it costs nothing any more. One to be created again still counts
    else:
        end = now if record.gone_at is None else record.gone_at
    return max(0.0, end - max(record.ordered_at, now - DAY)) / HOUR


@dataclass(slots=True)
class GuardUsage:
    """The guards of all clouds and their usage."""

    overall: GuardLimits
    clouds: Mapping[str, GuardLimits]
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def is_guarded(self) -> bool:
        """Whether any limit is set."""
        return any(limits != GuardLimits() for limits in (self.overall, *self.clouds.values()))

    def put(self, cloud: str, counted: Tally) -> None:
        """Replaces the count of one cloud."""
        self.tallies[cloud] = counted

    def ask(self, cloud: str, hourly: Decimal | None, *, is_in_place: bool = False) -> ErrorRecord | None:
        """Counts one more machine and returns None, or returns why it may not be requested.

        ``is_in_place``: it replaces a machine that is known to be gone and is still in the count.
        """
        wanted = Tally(machines=0 if is_in_place else 1, waiting=1, spend=float(hourly or 0))
        refusal = self._refusal(cloud, wanted, orders_to_come=1)
        if refusal is None:
            self._add(cloud, wanted)
        return refusal

    def refusal(self, cloud: str, hourly: Decimal | None, *, count: int = 1) -> ErrorRecord | None:
        """Why so many more machines may not be requested; None when they may. Counts nothing."""
        wanted = Tally(machines=count, waiting=count, spend=count * float(hourly or 0))
        return self._refusal(cloud, wanted, orders_to_come=count)

    def order(self, cloud: str, *, is_first: bool) -> ErrorRecord | None:
        """Why no create call may be made now for a requested machine; None when it may. ``is_first``: its first call.

        Checked again before every call, because a list may have shown more machines meanwhile.
        """
        refusal = self._refusal(cloud, Tally(), orders_to_come=1, waiting_counts=False)
        if refusal is None:
            self._add(cloud, Tally(waiting=-1 if is_first else 0, orders=1))
        return refusal

    def use(self) -> list[GuardUse]:
        """The usage of every guard that is set."""
        found = _use("", self.overall, self._sum())
        for cloud, limits in self.clouds.items():
            found += _use(cloud, limits, self.tallies.get(cloud, Tally()))
        return found

    def _add(self, cloud: str, more: Tally) -> None:
        own = self.tallies.setdefault(cloud, Tally())
        own.machines += more.machines
        own.waiting += more.waiting
        own.orders += more.orders
        own.spend += more.spend

    def _refusal(
        self, cloud: str, wanted: Tally, *, orders_to_come: int, waiting_counts: bool = True
    ) -> ErrorRecord | None:
        own = self.tallies.get(cloud, Tally())
        for key, scope, limits, used in (
            (f"clouds.{cloud}.engine.guards", "", self.clouds.get(cloud, GuardLimits()), own),
            ("guards", " for all clouds", self.overall, self._sum()),
        ):
            orders = used.orders + orders_to_come + (used.waiting if waiting_counts else 0)
            what = _exceeded(limits, used.machines + wanted.machines, orders, used.spend + wanted.spend)
            if what:
                return failure("guard", f"{key}.{what}{scope}", ErrorClass.OUT_OF_RESOURCES)
        return None

    def _sum(self) -> Tally:
        return Tally.total(self.tallies.values())


def _exceeded(limits: GuardLimits, machines: int, orders: int, spend: float) -> str:
    if limits.max_machines is not None and machines > limits.max_machines:
        return f"maxMachines is {limits.max_machines}"
    if limits.max_creates_per_hour is not None and orders > limits.max_creates_per_hour:
        return f"maxCreatesPerHour is {limits.max_creates_per_hour}"
    cap = limits.max_spend_per_day
    if cap is not None and spend > float(cap.amount):
        return f"maxSpendPerDay is {cap.amount} {cap.currency}"
    return ""


def _use(scope: str, limits: GuardLimits, used: Tally) -> list[GuardUse]:
    found = []
    if limits.max_machines is not None:
        found.append(GuardUse(scope=scope, guard="maxMachines", used=used.machines, limit=limits.max_machines))
    if limits.max_creates_per_hour is not None:
        found.append(
            GuardUse(scope=scope, guard="maxCreatesPerHour", used=used.orders, limit=limits.max_creates_per_hour)
        )
    cap = limits.max_spend_per_day
    if cap is not None:
        spend = round(used.spend, 2)
        found.append(
            GuardUse(scope=scope, guard="maxSpendPerDay", used=spend, limit=float(cap.amount), unit=cap.currency)
        )
    return found


# -- deletions by the engine -------------------------------------------------------------------------------------------
# `guards.maxDeletesPerHour` limits deletions that neither the autoscaler nor an operator ordered. The engine decides
# itself to delete failed machines, broken ones that it replaces, duplicates, machines that came back and orphans, and
# so perhaps by mistake. Ordered deletions neither count nor wait.
#
# Each such deletion is an event of kind `removal`, written before the call to the cloud: a restart counts these events.


REMOVAL: Final = "removal"  # the kind of the events that count
_NAME: Final = "maxDeletesPerHour"


class DeleteGuard:
    """Counts deletions of the last hour, each machine once however often its cloud is called."""

    def __init__(self) -> None:
        # Time of the deletion by cloud, machine id and name in the journal: some clouds reuse ids.
        self._counted: dict[tuple[str, str, str], float] = {}
        self._limits: dict[str, int] = {}  # by cloud; "" for all of them

    def configure(self, overall: GuardLimits, clouds: Mapping[str, GuardLimits]) -> None:
        """Takes new limits."""
        found = {"": overall, **clouds}
        self._limits = {
            name: limits.max_deletes_per_hour
            for name, limits in found.items()
            if limits.max_deletes_per_hour is not None
        }

    def load(self, events: Iterable[Event], now: float) -> None:
        """Replaces the count by the journal's events of the last hour."""
        self._counted = {
            (event.cloud, str(event.data.get("machine_id", "")), event.machine): min(event.at, now) for event in events
        }

    def refusal(self, cloud: str, machine_id: str, now: float, *, name: str = "") -> str:
        """Why this machine may not be deleted now; empty when it may. ``name``: its name in the journal, if any."""
        self._counted = {key: at for key, at in self._counted.items() if at > now - HOUR}
        if (cloud, machine_id, name) in self._counted:
            return ""  # the same deletion is tried again
        for scope, key, end in (
            (cloud, f"clouds.{cloud}.engine.guards", ""),
            ("", "guards", " for all clouds"),
        ):
            limit = self._limits.get(scope)
            if limit is not None and self._used(scope, now) >= limit:
                return f"{key}.{_NAME} is {limit}{end}"
        return ""

    def count(self, cloud: str, machine_id: str, now: float, *, name: str = "") -> bool:
        """Counts a deletion before the call; returns whether it counts, or was counted already."""
        key = (cloud, machine_id, name)
        is_new = key not in self._counted
        self._counted.setdefault(key, now)
        return is_new

    def uncount(self, cloud: str, machine_id: str, *, name: str = "") -> None:
        """Takes back a count: the machine was not deleted, because the journal could not be written."""
        self._counted.pop((cloud, machine_id, name), None)

    def use(self, now: float) -> list[GuardUse]:
        """The usage of every limit that is set."""
        return [
            GuardUse(scope=scope, guard=_NAME, used=self._used(scope, now), limit=limit)
            for scope, limit in self._limits.items()
        ]

    def _used(self, scope: str, now: float) -> int:
        return sum(scope in ("", cloud) and at > now - HOUR for (cloud, _, _), at in self._counted.items())
