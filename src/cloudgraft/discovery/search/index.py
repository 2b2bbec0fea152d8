"""Indexes all clusters in memory, as of one number of the database's counter. Searches read only this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from math import inf

from cloudgraft.discovery.model import Cluster, Heartbeat, Reservation
from cloudgraft.discovery.search.candidates import Candidate, Columns, candidate_of
from cloudgraft.discovery.search.reservations import Record, cluster_of, living
from cloudgraft.discovery.store.database import EVERYTHING
from cloudgraft.discovery.store.statements import Delta


class _Entry:
    """One cluster with its computed state, which is recomputed only when it may have changed."""

    __slots__ = ("candidate", "cluster", "place", "record")

    def __init__(self, record: Record, place: int, now: float, stale_after: float) -> None:
        self.record = record
        self.place = place  # position in the columns
        self.candidate = candidate_of(record, now, stale_after)
        self.cluster: Cluster | None = None

    def look(self, now: float, stale_after: float) -> Candidate:
        """The current candidate."""
        found = self.candidate
        if not found.since <= now < found.until:
            found = self.candidate = candidate_of(self.record, now, stale_after)
            self.cluster = None
        return found

    def show(self, now: float, stale_after: float) -> Cluster:
        """The current cluster, for readers."""
        self.look(now, stale_after)
        if self.cluster is None:
            self.cluster = cluster_of(self.record, now, stale_after)
        return self.cluster


class ClusterIndex:
    """Follows the database by deltas. For one thread.

    Computes what a search needs when a cluster changes, not when a search runs: each change costs its own work, and a
    search only reads.
    """

    def __init__(self, stale_after: float) -> None:
        self.seq = EVERYTHING
        self._stale_after = stale_after
        self._entries: dict[str, _Entry] = {}
        self._columns = Columns()
        self._since, self._until = -inf, inf  # the columns are valid between these times

    def apply(self, delta: Delta, now: float) -> None:
        """Applies changes. Ignores those that are older than the index, which has them already."""
        if delta.is_whole:
            self._entries, self._columns = {}, Columns()
        elif delta.seq < self.seq:
            return
        self.seq = delta.seq
        for id_ in delta.removed:
            self._drop(id_)
        for record in delta.records:
            self._put(record, now)

    def _drop(self, id_: str) -> None:
        gone = self._entries.pop(id_, None)
        moved = None if gone is None else self._columns.remove(gone.place)
        if gone is not None and moved is not None:
            self._entries[moved.id].place = gone.place

    def _put(self, record: Record, now: float) -> None:
        known = self._entries.get(record.spec.id)
        place = len(self._columns.candidates) if known is None else known.place
        entry = self._entries[record.spec.id] = _Entry(record, place, now, self._stale_after)
        self._columns.put(place, entry.candidate)
        self._since, self._until = max(self._since, entry.candidate.since), min(self._until, entry.candidate.until)

    def beat(self, beats: Mapping[str, Heartbeat], at: float, delta: Delta) -> None:
        """Applies written heartbeats, and what others wrote meanwhile."""
        if delta.seq == self.seq + 1 and not delta.is_whole:
            for id_, beat in beats.items():
                if id_ in self._entries:
                    self._put(replace(self._entries[id_].record, beat=beat, beat_at=at), at)
        self.apply(delta, at)

    def warm(self) -> None:
        """Prepares the first search."""
        self._columns.warm()

    def columns(self, now: float) -> Columns:
        """All clusters, for a search."""
        if not self._since <= now < self._until:
            self._look_again(now)
        return self._columns

    def _look_again(self, now: float) -> None:
        """Recomputes entries that changed by time alone: an expired hold or price, a silent agent."""
        since, until = -inf, inf
        for entry in self._entries.values():
            found = entry.look(now, self._stale_after)
            if found is not self._columns.candidates[entry.place]:
                self._columns.put(entry.place, found)
            since, until = max(since, found.since), min(until, found.until)
        self._since, self._until = since, until

    def clusters(self, now: float) -> list[Cluster]:
        """All clusters, by id."""
        return [self._entries[id_].show(now, self._stale_after) for id_ in sorted(self._entries)]

    def cluster(self, id_: str, now: float) -> Cluster | None:
        """One cluster."""
        entry = self._entries.get(id_)
        return None if entry is None else entry.show(now, self._stale_after)

    def record(self, id_: str) -> Record | None:
        """One cluster's database record."""
        entry = self._entries.get(id_)
        return None if entry is None else entry.record

    def reservations(self, now: float) -> list[Reservation]:
        """All active ones, by owner."""
        stored = chain.from_iterable(entry.record.reservations for entry in self._entries.values())
        return sorted(living(stored, now), key=lambda one: (one.owner, one.cluster))
