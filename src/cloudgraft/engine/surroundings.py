"""What all workers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.cluster import UserData
from cloudgraft.engine.delete_guard import DeleteGuard
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.guards import Book
from cloudgraft.engine.identity import Identity
from cloudgraft.engine.nodes import Nodes
from cloudgraft.engine.specs import EngineSettings
from cloudgraft.engine.writer import Writer

__all__ = ["Surroundings"]


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
    observes_only: Callable[[str], bool]  # whether nothing may be changed in a cloud
    user_data: UserData | None = None
