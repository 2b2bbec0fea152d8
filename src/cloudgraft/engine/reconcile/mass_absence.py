"""Doubts lists of one cloud that miss many machines (`engine.massAbsence`).

A list that misses many at once is doubted until the absence has lasted. So are lists that miss a few more each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.machines.breaker import Breaker, Turn
from cloudgraft.engine.machines.observation import Listing, Looker, Observation
from cloudgraft.engine.machines.states import has_vanished, is_lost
from cloudgraft.engine.new_records import happened
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.store.records import Change, Event, MachineRecord, Presence, State

_SLICE = 1000  # machines checked before the event loop gets control
_THERE = frozenset({State.BOOTING, State.RUNNING})  # without machines being deleted


class Absence:
    """Counts machines that the lists of one cloud miss."""

    def __init__(self, cloud: str, context: EngineContext, observation: Callable[[str], Observation]) -> None:
        """``observation`` returns the observation of one machine."""
        self.breaker = Breaker()
        self._cloud = cloud
        self._context = context
        self._observation = observation

    @property
    def held_back(self) -> str:
        """What is not believed of the latest list, and how an operator accepts it; empty when all is believed."""
        if not self.breaker.is_open:
            return ""
        limit = self._context.settings.absence
        return (
            f"the list of cloud {self._cloud} misses {len(self.breaker.affected)} of {self.breaker.total} machines at "
            f"once; no more of them is taken for gone until that has lasted {(limit.hold or 0) / 60:.3g} minutes and "
            f"{limit.looks} lists. If they are really gone, run `cloudgraft accept-loss --cloud {self._cloud}`"
        )

    async def judge(self, listing: Listing, looker: Looker) -> Looker:
        """How to read this list: no absence is believed while it misses too many machines at once."""
        limit = self._context.settings.absence
        missing, total = await self._missing(listing, looker)
        lost = self._lost_before(missing, listing)
        turn = self.breaker.look(missing | lost, total + len(lost), limit, passed=listing.passed)
        if turn is not Turn.NONE:
            kind = "breaker" if turn is Turn.OPENED else "breaker_closed"
            event = happened(kind, self._context.clock.now(), self._message(turn), cloud=self._cloud)
            await self._context.writer.write(lambda: Change(events=(event,)))
        return replace(looker, is_doubted=self.breaker.is_open, accepted=self.breaker.accepted)

    async def _missing(self, listing: Listing, looker: Looker) -> tuple[set[str], int]:
        """The names of existing machines that this list must contain and misses; and how many it must contain."""
        missing: set[str] = set()
        total = 0
        records = self._context.fleet.in_cloud(self._cloud)
        async for some in in_slices(list(records.values()), _SLICE):
            for record in some:
                if record.state in _THERE and listing.tells_of(record):
                    total += 1
                    if not _is_listed(record, listing) and self._is_doubtful(record, listing, looker):
                        missing.add(record.name)
        return missing, total

    def _is_doubtful(self, record: MachineRecord, listing: Listing, looker: Looker) -> bool:
        observation = self._observation(record.name)
        return not looker.is_borne_out(observation) and looker.must_show(record, observation, listing)

    def _lost_before(self, missing: set[str], listing: Listing) -> set[str]:
        """Machines whose absence was believed recently: many that vanish a few at a time are suspicious too."""
        hold, known = self._context.settings.absence.hold, self._context.fleet.machines
        missed = {
            name: since
            for name, since in self._context.losses.of(self._cloud).items()
            if (hold is None or listing.began - since < hold)
            and (name in missing or (name in known and _has_vanished(known[name], listing)))
        }
        for name in missing:
            missed.setdefault(name, listing.began)
        self._context.losses.put(self._cloud, missed)
        return missed.keys() - missing

    def losses(self, records: Iterable[MachineRecord], now: float) -> list[Event]:
        """The loss events for records that are about to be written as gone because lists missed them.

        None for machines whose absence was accepted or is confirmed by their nodes: these give no reason for doubt.
        """
        losses = self._context.losses
        doubtful = losses.of(self._cloud).keys() - self.breaker.accepted
        return [losses.told(record, now) for record in records if record.name in doubtful and _is_over(record)]

    def _message(self, turn: Turn) -> str:
        if turn is Turn.CLOSED:
            return f"cloud {self._cloud} shows its machines again; absence is believed as usual"
        if turn is Turn.EXPIRED:
            return f"cloud {self._cloud} still misses {len(self.breaker.accepted)} machines; they are taken for gone"
        return self.held_back


def _is_listed(record: MachineRecord, listing: Listing) -> bool:
    return record.machine_id in listing.by_id or record.name in listing.by_name


def _has_vanished(record: MachineRecord, listing: Listing) -> bool:
    """Whether a machine counts as gone because lists missed it, and this list misses it too."""
    return _is_over(record) and not _is_listed(record, listing)


def _is_over(record: MachineRecord) -> bool:
    """Whether lists missed it; also if it failed for that and the autoscaler deleted it, which takes seconds."""
    if is_lost(record) or has_vanished(record):
        return True
    return record.state is State.FAILED and record.presence is Presence.NONE
