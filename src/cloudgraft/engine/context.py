"""What all workers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.delete_guard import REMOVAL, DeleteGuard
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.guards import HOUR, Book
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.nodes.cluster import UserData
from cloudgraft.engine.nodes.tracking import Nodes
from cloudgraft.engine.recent_losses import LOSS, Losses
from cloudgraft.engine.writer import Writer
from cloudgraft.store.journal import EventQuery, Journal

__all__ = ["Surroundings"]

_RECALLED: Final = 100_000  # events of a kind
_LONGEST_HOLD: Final = 86_400.0  # seconds; losses count for as long as engine.massAbsence.hold says


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """The engine, as a worker sees it. Settings, guards, the cluster and user data change with the configuration."""

    fleet: Fleet
    writer: Writer
    clock: Clock
    identity: Identity
    settings: EngineSettings
    book: Book
    may_act: Callable[[], bool]  # False as soon as another process leads
    is_configured: Callable[[str], bool]  # whether there is a cloud of this name
    is_placed: Callable[[str], bool]  # whether a cloud's groups are known: its machines have no place to go before
    nodes: Nodes
    deletions: DeleteGuard
    losses: Losses
    observes_only: Callable[[str], bool]  # whether nothing may be changed in a cloud
    user_data: UserData | None = None

    async def recall(self, journal: Journal) -> None:
        """Reads what counts for limits that hold over a restart."""
        now = self.clock.now()
        for kind, seconds, load in (
            (REMOVAL, HOUR, self.deletions.load),
            (LOSS, _LONGEST_HOLD, self.losses.load),
        ):
            load(await journal.events(EventQuery(kinds=(kind,), since=now - seconds, limit=_RECALLED)), now)
