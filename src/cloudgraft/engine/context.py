"""Holds the state and settings that all workers of an engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.guards import HOUR, REMOVAL, DeleteGuard, GuardUsage
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.traces import MachineTraces
from cloudgraft.engine.new_records import about
from cloudgraft.engine.nodes.tracking import Nodes, UserData
from cloudgraft.engine.writer import Writer
from cloudgraft.store.journal import EventQuery, Journal
from cloudgraft.store.records import Event, MachineRecord

# -- recent losses -----------------------------------------------------------------------------------------------------
# When the engine takes a machine for gone only because lists miss it, it writes an event of kind `loss` together with
# the new state. A restart reads these events, so that losses of a few machines at a time add up as if there had been
# no restart.


LOSS: Final = "loss"  # the kind of the events that count


class Losses:
    """When lists began to miss a machine, by cloud and name. Outlives a worker whose cloud gets a new driver."""

    def __init__(self) -> None:
        self._since: dict[str, Mapping[str, float]] = {}

    def load(self, events: Iterable[Event], now: float) -> None:
        """Replaces all losses by those of the journal."""
        found: dict[str, dict[str, float]] = {}
        for event in events:
            since = event.data.get("since")
            at = since if isinstance(since, int | float) else event.at
            found.setdefault(event.cloud, {})[event.machine] = min(at, now)
        self._since = dict(found)

    def of(self, cloud: str) -> Mapping[str, float]:
        """The losses of one cloud."""
        return self._since.get(cloud, {})

    def put(self, cloud: str, since: Mapping[str, float]) -> None:
        """Replaces the losses of one cloud."""
        self._since[cloud] = since

    def told(self, record: MachineRecord, now: float) -> Event:
        """The event for a machine that the engine takes for gone."""
        why = "lists miss it, and nothing else tells that it is gone; it counts for engine.massAbsence"
        return about(record, now, why, kind=LOSS, since=self.of(record.cloud)[record.name])


_RECALLED: Final = 100_000  # events of a kind
_LONGEST_HOLD: Final = 86_400.0  # seconds; losses count for as long as engine.massAbsence.hold says


@dataclass(slots=True, kw_only=True)
class EngineContext:
    """The engine as a worker sees it. Settings, guards, the cluster and user data change with the configuration."""

    fleet: Fleet
    writer: Writer
    clock: Clock
    identity: Identity
    settings: EngineSettings
    guard_usage: GuardUsage
    may_act: Callable[[], bool]  # False as soon as another process leads
    is_configured: Callable[[str], bool]  # whether there is a cloud of this name
    is_placed: Callable[
        [str], bool
    ]  # whether a cloud's groups are known; before that its machines cannot be assigned to a group
    nodes: Nodes
    deletions: DeleteGuard
    losses: Losses
    observes_only: Callable[[str], bool]  # whether nothing may be changed in a cloud
    user_data: UserData | None = None
    traces: MachineTraces | None = None

    async def recall(self, journal: Journal) -> None:
        """Reads the events that count for limits which survive a restart."""
        now = self.clock.now()
        for kind, seconds, load in (
            (REMOVAL, HOUR, self.deletions.load),
            (LOSS, _LONGEST_HOLD, self.losses.load),
        ):
            load(await journal.events(EventQuery(kinds=(kind,), since=now - seconds, limit=_RECALLED)), now)
