"""Simulates the cloud itself, without any transport. Safe for threads.

It works with any clock: everything that happens by itself (a machine boots, dies, is gone) follows from comparing
times, so nothing has to run in the background.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import itertools
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from cloudgraft.sdk.driver import Idempotency, Price, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    QuotaExceededError,
)
from cloudgraft.simcloud.chaos import Chaos, Span
from cloudgraft.simcloud.fields import number
from cloudgraft.simcloud.ledger import Ledger
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.outcomes import Dice, Operation, Outcome, draw_outcome
from cloudgraft.simcloud.records import LedgerEntry, Order, Page, Record, SimMachine
from cloudgraft.simcloud.shapes import Catalog, Offer

# -- machines in memory: the present ones, and for a while the deleted ones --------------------------------------------
# Not safe for threads: the cloud guards it.


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
        for moment in times:
            heapq.heappush(self._changes, (moment, record.seq))
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


Work = Callable[[], object]


class SimulatedCloud:
    """Machines that cost money by the hour, and a ledger of all of them. :class:`Chaos` configures the faults.

    A call as a client sees it is three steps, so that each transport can wait in its own way: :meth:`outcome`, waiting
    for ``outcome.delay`` and while :meth:`hangs_for` says so, and ``outcome.carry_out`` of one of the methods.
    """

    def __init__(
        self,
        options: SimulatedOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
        chaos: Chaos | None = None,
        ident: str = "",
    ) -> None:
        """Opens the ledger; ``ident`` is the first part of every machine id of a new one, random unless given."""
        self.options = options or SimulatedOptions()
        self._catalog = Catalog(self.options)
        self._clock = clock
        self._lock = threading.RLock()
        self._ledger = Ledger(self.options.state_file, ident=ident or secrets.token_hex(4))
        now = clock()
        self._inventory = Inventory(self._ledger.present_after(now - REMEMBERED), now)
        self._last_seq = self._ledger.last_seq()
        self._postponed: list[tuple[float, int, Work]] = []  # a heap, by time
        self._order_of_postponed = itertools.count()
        self._calls: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self.set_chaos(chaos or Chaos())

    # -- calls of clients ----------------------------------------------------------------------------------------------

    def create(self, order: Order) -> tuple[SimMachine, bool]:
        """The machine, and whether it is new; on disk when this returns."""
        with self._lock:
            now = self._advance()
            offer = self._catalog[order.settings.shape]
            known = self._same(order)
            if known is None:
                self._check_room(offer.shape)
                self._check_id(order.machine_id, now)
                record = self._new_record(order, offer, now)
            else:
                record = replace(known, creates=known.creates + 1)
            self._save(record, now)
            return record.view_at(now), known is None

    def delete(self, machine_id: str, *, client: str = "") -> SimMachine:
        """Begins to delete a machine; one that is being deleted stays as it is. NotFoundError when it is gone."""
        with self._lock:
            now = self._advance()
            record = self._get(machine_id, now)
            record = replace(record, deletes=record.deletes + 1, deleted_by=client)
            if record.delete_asked_at is None and not self._strikes("ignores_delete"):
                gone_at = now + self._seconds("delete_time")
                record = replace(record, delete_asked_at=now, gone_at=gone_at)
            self._save(record, now)
            return record.view_at(now)

    def mark(self, machine_id: str, tags: Mapping[str, str | None]) -> SimMachine:
        """Puts tags on a machine, and takes off those whose value is None. Tags that it had lost do not come back."""
        with self._lock:
            now = self._advance()
            record = self._get(machine_id, now)
            left = {key: value for key, value in record.view_at(now).tags.items() if key not in tags}
            given = {key: value for key, value in tags.items() if value is not None}
            record = replace(record, order=replace(record.order, tags={**left, **given}), tags_lost_at=None)
            self._save(record, now)
            return record.view_at(now)

    def page(self, limit: int, cursor: str = "") -> Page[SimMachine]:
        """Some machines, oldest first, as they were before the list's lag; all pages show the same moment."""
        with self._lock:
            now = self._advance()
            after, moment = _parse_cursor(cursor) if cursor else (0, now - self._seconds("list_lag"))
            seen = list(islice(self._inventory.seen_at(moment, after=after), limit + 1))
            more = len(seen) > limit
            shown = [record.view_at(moment) for record in seen[:limit]]
            following = _cursor(shown[-1].seq, moment) if more else ""
            if self._strikes("short_lists"):
                shown = shown[::2]
            if self._strikes("empty_lists"):
                return Page(machines=[], count=0, more=False)
            if self._strikes("half_pages"):
                return Page(machines=shown[: len(shown) // 2], count=len(shown), more=more)
            return Page(machines=shown, count=len(shown), more=more, cursor=following)

    def get(self, machine_id: str) -> SimMachine:
        """One machine, as it is now."""
        with self._lock:
            now = self._advance()
            return self._get(machine_id, now).view_at(now)

    def shapes(self) -> list[Shape]:
        """The machine types on offer."""
        return self._catalog.shapes()

    def prices(self) -> list[Price]:
        """What an hour of each costs."""
        return self._catalog.prices()

    # -- faults and delays ---------------------------------------------------------------------------------------------

    def outcome(self, operation: Operation) -> Outcome:
        """The outcome of the next call of this kind. Counts the call."""
        with self._lock:
            self._calls[operation.value] += 1
            return draw_outcome(operation, self._chaos, self._dice)

    def hangs_for(self) -> float:
        """Seconds for which no call is carried out: 0 for none, infinite until chaos is set again."""
        with self._lock:
            return self._hangs_for(self._clock())

    def postpone(self, work: Work, seconds: float = 0.0) -> None:
        """Carries the work out after that time, and not while the cloud hangs. Its result is dropped."""
        with self._lock:
            heapq.heappush(self._postponed, (self._clock() + seconds, next(self._order_of_postponed), work))

    @property
    def chaos(self) -> Chaos:
        """The current faults."""
        return self._chaos

    def set_chaos(self, chaos: Chaos) -> None:
        """Replaces all faults. Counted faults start again."""
        with self._lock:
            for shape in chaos.stock:
                self._catalog[shape]  # raises when there is no such shape
            self._chaos = chaos
            self._chaos_since = self._clock()
            self._dice = Dice(chaos.seed, self._faults)
            self._advance()

    # -- calls of operators --------------------------------------------------------------------------------------------

    def kill(self, machine_id: str) -> None:
        """Kills a machine: it stays in the list, as failed, until it is deleted."""
        self._change(machine_id, lambda record, now: replace(record, dies_at=now))

    def vanish(self, machine_id: str) -> None:
        """Makes a machine vanish without a delete."""
        self._change(machine_id, lambda record, now: replace(record, gone_at=now))

    def lose_tags(self, machine_id: str) -> None:
        """Drops the machine's tags. The ledger keeps them."""
        self._change(machine_id, lambda record, now: replace(record, tags_lost_at=now))

    def machines(self) -> list[SimMachine]:
        """Every present machine in its real state, not as a list would show it."""
        with self._lock:
            now = self._advance()
            return [record.view_at(now) for record in self._inventory.present()]

    @property
    def revision(self) -> int:
        """Grows whenever the result of :meth:`machines` changes; cheap to read."""
        with self._lock:
            self._advance()
            return self._inventory.revision

    def ledger(self) -> list[LedgerEntry]:
        """Every machine that was ever made, oldest first."""
        with self._lock:
            now = self._advance()
            return [record.entry_at(now) for record in self._ledger.all()]

    def calls(self) -> dict[str, int]:
        """How many calls of each kind were made since the start."""
        with self._lock:
            return dict(self._calls)

    def faults(self) -> dict[str, int]:
        """How often each fault occurred since the start, by names such as ``create.lost``."""
        with self._lock:
            return dict(self._faults)

    def close(self) -> None:
        """Closes the ledger's file."""
        with self._lock:
            self._ledger.close()

    # -- helpers, all under the lock -----------------------------------------------------------------------------------

    def _advance(self) -> float:
        """Carries out what is due by now, and returns the time."""
        now = self._clock()
        while self._postponed and self._postponed[0][0] <= now and not self._hangs_for(now):
            _, _, work = heapq.heappop(self._postponed)
            with contextlib.suppress(CloudgraftError):
                work()
        self._inventory.advance(now)
        return now

    def _hangs_for(self, now: float) -> float:
        hang = self._chaos.hang
        if isinstance(hang, bool):
            return math.inf if hang else 0.0
        return max(0.0, self._chaos_since + hang - now)

    def _same(self, order: Order) -> Record | None:
        """The machine that this order means, where the cloud is idempotent."""
        match self.options.idempotency:
            case Idempotency.TOKEN if order.token:
                known = self._ledger.find_token(order.token)
                if known is not None and (known.order.name, known.order.settings) != (order.name, order.settings):
                    raise AlreadyExistsError(f"the token {order.token} was used for another order")
                return known and (self._inventory.find(known.machine_id) or known)
            case Idempotency.UNIQUE_NAME if self._inventory.find_name(order.name):
                raise AlreadyExistsError(f"there is a machine with the name {order.name} already")
        return None

    def _check_room(self, shape: Shape) -> None:
        quota = self.options.quota if self._chaos.quota is None else self._chaos.quota
        if quota is not None and len(self._inventory) >= quota:
            raise QuotaExceededError(f"the account may have {quota} machines, and has {len(self._inventory)}")
        stock = {**self.options.stock, **self._chaos.stock}.get(shape.name)
        if stock is not None and self._inventory.of_shape(shape.name) >= stock:
            raise OutOfStockError(f"there are no more machines of the shape {shape.name}")

    def _check_id(self, machine_id: str, now: float) -> None:
        known = self._inventory.find(machine_id)
        if known is not None and known.exists_at(now):
            raise AlreadyExistsError(f"there is a machine with the id {machine_id[:60]} already")

    def _new_record(self, order: Order, offer: Offer, now: float) -> Record:
        seq = self._last_seq + 1
        chaos = self._chaos
        boots = now + self._seconds("boot_time")
        dies = now + self._dice.seconds(chaos.dies_after)
        loses_tags = now + self._dice.seconds(chaos.loses_tags_after)
        return Record(
            seq=seq,
            machine_id=order.machine_id or f"{self._ledger.ident}-{seq:06d}",
            order=order,
            shape=offer.shape,
            hourly=offer.hourly,
            currency=self._catalog.currency,
            created_at=now,
            boots_at=None if self._strikes("never_boots") else boots,
            dies_at=dies if self._strikes("dies") else None,
            tags_lost_at=loses_tags if self._strikes("loses_tags") else None,
        )

    def _change(self, machine_id: str, change: Callable[[Record, float], Record]) -> None:
        with self._lock:
            now = self._advance()
            self._save(change(self._get(machine_id, now), now), now)

    def _get(self, machine_id: str, now: float) -> Record:
        record = self._inventory.find(machine_id)
        if record is None or not record.exists_at(now):
            raise NotFoundError(f"there is no machine {machine_id[:60]!r}")
        return record

    def _save(self, record: Record, now: float) -> None:
        """Writes to disk first: when that fails, nothing has changed."""
        self._ledger.write(record)
        self._last_seq = max(self._last_seq, record.seq)
        if record.exists_at(now) or self._inventory.find(record.machine_id):
            self._inventory.put(record, now)
            self._inventory.advance(now)

    def _strikes(self, fault: str) -> bool:
        return self._dice.strikes(fault, getattr(self._chaos, fault))

    def _seconds(self, field: str) -> float:
        """A time of chaos, else of the options."""
        span: Span | None = getattr(self._chaos, field)
        return getattr(self.options, field).total_seconds() if span is None else self._dice.seconds(span)


def _cursor(seq: int, moment: float) -> str:
    return f"{seq}@{moment!r}"


def _parse_cursor(cursor: str) -> tuple[int, float]:
    try:
        seq, moment = cursor.split("@")
        return int(seq), number(float(moment), "the cursor", most=math.inf)
    except (ValueError, InvalidArgumentError):
        raise InvalidArgumentError("the cursor is not one that this cloud gave out") from None
