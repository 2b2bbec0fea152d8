"""The judge of what holds the engine back: `observeOnly`, and `guards.maxDeletesPerHour`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cloudgraft.store.records import Change, MachineRecord, Presence, State
from tests.simulation.cloud import SimMachine
from tests.simulation.loop import Host

if TYPE_CHECKING:
    from tests.simulation.invariants import Judge
    from tests.simulation.world import World

_HOUR: Final = 3600.0
_PACE: Final = 0.9  # the engine's clock runs a tenth too fast while it catches up
_WRITTEN: Final = 120.0  # seconds that a change may be on its way to a journal that stalls
_ON_ITS_WAY: Final = (State.REQUESTED, State.CREATING, State.BOOTING, State.RUNNING)


class Restraint:
    """Knows what was configured when, and who had heard of it."""

    def __init__(self, world: World, judge: Judge) -> None:
        self._world = world
        self._judge = judge
        self._limit: int | None = None
        self._limit_at = 0.0  # when it was configured
        self._observed: dict[str, float] = {}  # by cloud: since when it is only to be observed
        self._asked: set[str] = set()  # intents of which the autoscaler asked to delete the machine
        self._first: dict[SimMachine, float] = {}  # when it was first deleted, by whosever wish
        self._deleted: dict[SimMachine, float] = {}  # when the engine first deleted it of its own accord

    def limit(self, deletes: int | None) -> None:
        """The configuration says how many machines may be deleted in an hour that nobody ordered to delete."""
        if deletes != self._limit:
            self._limit, self._limit_at = deletes, self._world.loop.time()

    def observe(self, clouds: Iterable[str]) -> None:
        """The configuration says of which clouds nothing but a look may be had."""
        now = self._world.loop.time()
        self._observed = {cloud: self._observed.get(cloud, now) for cloud in clouds}

    @property
    def may_wait(self) -> bool:
        """Whether there is a limit at all."""
        return self._limit is not None

    def is_holding(self) -> bool:
        """Whether deletions may have to wait."""
        # The engine also counts a machine that came back after the autoscaler had asked for its deletion.
        return self._limit is not None and self._count(self._first, _HOUR * (2 - _PACE)) >= self._limit

    # -- what happens --------------------------------------------------------------------------------------------------

    def on_asked(self, intents: Iterable[str]) -> None:
        """The autoscaler asks for the deletion of machines; whether in vain is not known."""
        self._asked.update(intents)

    def on_call(self, host: Host, cloud: str, what: str) -> None:
        """A call that changes something in a cloud."""
        since = self._observed.get(cloud)
        if since is not None and self._world.has_heard(host, since):
            self._judge.fail("acted-while-observing", f"{cloud} is observed since {since:.0f}; {what}")

    def on_delete_call(self, host: Host, machine: SimMachine) -> None:
        """A machine is deleted, perhaps once more."""
        now = self._world.loop.time()
        self._first.setdefault(machine, now)
        if machine.intent in self._asked or machine in self._deleted:
            return
        self._deleted[machine] = now
        if self._limit is None or not self._world.has_heard(host, self._limit_at) or now < self._judge.doubtful_until:
            return
        count = self._count(self._deleted, _HOUR * _PACE)
        if count > self._limit:
            self._judge.fail(
                "too-many-deletions", f"{count} in an hour that nobody ordered; the guard says {self._limit}"
            )

    def _count(self, deleted: Mapping[SimMachine, float], seconds: float) -> int:
        return sum(at > self._world.loop.time() - seconds for at in deleted.values())

    def on_commit(self, host: Host | None, change: Change, before: dict[str, MachineRecord]) -> None:
        """Nothing is given up where nothing may be deleted."""
        for record in change.machines:
            since, old = self._observed.get(record.cloud), before.get(record.name)
            if since is None or old is None or old.state not in _ON_ITS_WAY or host is None:
                continue
            is_given_up = record.state in (State.FAILED, State.DELETING) and record.presence is Presence.PRESENT
            if is_given_up and self._world.has_heard(host, since + _WRITTEN):
                self._judge.fail("acted-while-observing", f"{record.name} of {record.cloud} is given up")
