"""Holds the cloud's machines in memory: the present ones, and for a while the deleted ones.

Not safe for threads: the cloud guards it.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from cloudgraft.simcloud.records import Record

REMEMBERED: Final = 3600.0  # seconds for which a late list can still show a gone machine


class Inventory:
    """Machines by number, id and name; :meth:`advance` applies what happens by itself."""

    def __init__(self, records: Iterable[Record], now: float) -> None:
        self._records: dict[int, Record] = {}
        self._seqs: list[int] = []  # the same, in order
        self._by_id: dict[str, int] = {}
        self._by_name: dict[str, int] = {}  # the latest of each name that is there
        self._present: dict[int, str] = {}  # number -> shape
        self._per_shape: Counter[str] = Counter()
        self._changes: list[tuple[float, int]] = []  # a heap: when something will happen, to which machine
        self.revision = 0  # grows with every change, also with those by the clock
        for record in records:
            self.put(record, now)
        self.advance(now)

    def __len__(self) -> int:
        """How many machines are there."""
        return len(self._present)

    def of_shape(self, shape: str) -> int:
        """How many of them have that shape."""
        return self._per_shape[shape]

    def put(self, record: Record, now: float) -> None:
        """Stores a machine that is new or has changed."""
        if record.seq not in self._records:
            self._seqs.append(record.seq)  # numbers only grow
            self._by_id[record.machine_id] = record.seq
            self._by_name[record.order.name] = record.seq
            self._present[record.seq] = record.shape.name
            self._per_shape[record.shape.name] += 1
        self._records[record.seq] = record
        times = record.changes_after(now)
        if record.gone_at is not None and record.gone_at <= now:
            times.append(now)  # gone at once; advance() takes it out
        for time in times:
            heapq.heappush(self._changes, (time, record.seq))
        self.revision += 1

    def advance(self, now: float) -> None:
        """Follows the clock: removes machines that are gone by now, and forgets those gone for long."""
        while self._changes and self._changes[0][0] <= now:
            _, seq = heapq.heappop(self._changes)
            record = self._records.get(seq)
            if record is None:
                continue
            self.revision += 1
            if record.gone_at is not None and record.gone_at <= now:
                self._leave(record, now)

    def find(self, machine_id: str) -> Record | None:
        """The machine of that id, also one that is gone, as long as it is remembered."""
        seq = self._by_id.get(machine_id)
        return None if seq is None else self._records[seq]

    def find_name(self, name: str) -> Record | None:
        """The machine of that name that is there."""
        seq = self._by_name.get(name)
        return None if seq is None else self._records[seq]

    def present(self) -> Iterator[Record]:
        """The machines that are there, oldest first."""
        return (self._records[seq] for seq in self._present)

    def seen_at(self, moment: float, *, after: int) -> Iterator[Record]:
        """The machines that were there at that moment, from a number on, oldest first."""
        for index in range(bisect.bisect_right(self._seqs, after), len(self._seqs)):
            record = self._records[self._seqs[index]]
            if record.exists_at(moment):
                yield record

    def _leave(self, record: Record, now: float) -> None:
        if self._present.pop(record.seq, None) is not None:
            self._per_shape[record.shape.name] -= 1
            if self._by_name.get(record.order.name) == record.seq:
                del self._by_name[record.order.name]
        forget_at = (record.gone_at or now) + REMEMBERED
        if forget_at > now:
            heapq.heappush(self._changes, (forget_at, record.seq))
            return
        del self._records[record.seq]
        if self._by_id.get(record.machine_id) == record.seq:  # else its id is another's by now
            del self._by_id[record.machine_id]
        del self._seqs[bisect.bisect_left(self._seqs, record.seq)]
