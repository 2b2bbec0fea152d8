"""Judges a driver by its cloud's lists and by the journal of the server that used it. Pure.

Each rule only uses what must hold at any time, however the server was killed. So every list is judged, not only the
last one.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, Identity
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState, Ownership, PartialList
from cloudgraft.store.records import Event, MachineRecord, Presence, State
from cloudgraft.torture.journal_view import JournalView

MARGIN = 0.1  # seconds: a cloud's clock is not ours
_AT_WORK = frozenset({State.BOOTING, State.RUNNING})
_OPEN = frozenset({State.REQUESTED, State.CREATING, State.BOOTING, State.DELETING})


class Rule(enum.Enum):
    """A rule, with its meaning."""

    PROMISE = "the server keeps what it answered: target and list agree, also after a kill"
    UNKNOWN = "the journal names every machine before the cloud is called for it"
    DOUBLE = "one intent is one machine"
    REFUSED = "an error that promises that nothing was done keeps that promise"
    MISSING = "a list shows every machine that was created longer ago than list_delay"
    RETURNED = "a machine that counts as gone does not exist"
    MARKS = "a list gives back the marks of a machine"
    FOREIGN = "machines of others are not touched"
    SETTLED = "server and cloud come to agree"
    DELETED = "a deleted machine disappears"
    SERVER = "the server serves until it is killed"


# What most often causes a violation, and what to do.
ADVICE: Mapping[Rule, str] = {
    Rule.PROMISE: "this is a bug of cloudgraft: please report it with the directory of this run",
    Rule.UNKNOWN: "give each machine the name and the tags of its MachineSpec, and create none without being asked",
    Rule.DOUBLE: "declare `idempotency` as it is, and raise DeadlineError, not UnavailableError, whenever the cloud "
    "may have carried out a create",
    Rule.REFUSED: "raise DeadlineError, not UnavailableError, for a lost answer and for a 5xx after which the machine "
    "may exist",
    Rule.MISSING: "read all pages, raise rather than return a part, and declare the longest delay as `list_delay`",
    Rule.RETURNED: "raise `list_delay` and engine.createTimeout to what the cloud needs, and raise NotFoundError only "
    "for a machine that does not exist",
    Rule.MARKS: "set spec.tags in the call that creates the machine, and return them in list()",
    Rule.FOREIGN: "delete by machine_id only; if somebody else removed them, repeat the run when nobody does",
    Rule.SETTLED: "look at the warnings in the server's log: which call fails, and with which error?",
    Rule.DELETED: "delete() must delete the machine, and raise an error when the cloud refuses",
    Rule.SERVER: "look at the end of the server's log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken rule, or a note about something that the rules allow."""

    rule: Rule
    what: str
    is_note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One list of the cloud, from outside the server; times are monotonic."""

    began: float
    machines: Sequence[Machine]

    def tells_of(self, machine_id: str) -> bool:
        """Whether the list would show a machine of this id."""
        return not isinstance(self.machines, PartialList) or self.machines.tells_of(machine_id)


def is_ours(machine: Machine, identity: Identity) -> bool:
    """Whether this run made the machine: by its cluster id, which is in tags and names, and no other mark."""
    return machine.tags.get(TAG_CLUSTER_ID, identity.cluster_id) == identity.cluster_id and identity.looks_ours(machine)


@dataclass(slots=True)
class Judge:
    """Compares lists with the journal. Reports each violation once."""

    identity: Identity
    traits: DriverTraits
    foreign: Mapping[str, Machine]  # by machine id: those that were there before, and must stay
    patience: float = math.inf  # seconds for a deletion
    ids: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))  # name -> id -> first seen
    _present: dict[tuple[str, str], float] = field(default_factory=dict)  # name and id -> since when the journal has it
    _gone: dict[str, float] = field(default_factory=dict)  # name -> since when the journal has it as gone
    _deleting: dict[str, float] = field(default_factory=dict)  # name -> since when the journal has it as deleting
    _unmarked: dict[str, float] = field(default_factory=dict)  # id -> first seen without marks
    _missing: dict[str, float] = field(default_factory=dict)  # foreign id -> first list without it
    _events: int = 0  # the last one that was judged
    _reported: set[tuple[Rule, str]] = field(default_factory=set)

    @property
    def delay(self) -> float:
        """How late a list may be, in seconds."""
        return self.traits.list_delay.total_seconds()

    def see(self, listing: Listing, journal: JournalView, read_at: float) -> list[Finding]:
        """Judges a list by a journal that was read at ``read_at``, after the list."""
        by_id = {machine.machine_id: machine for machine in listing.machines}
        found = [
            *self._see_unknown(listing, journal),
            *self._see_doubles(listing, journal),
            *self._see_records(listing, by_id, journal.machines.values()),
            *self._see_marks(listing, by_id, journal.machines.values()),
            *self._see_foreign(listing, by_id),
            *self._see_events(journal.events),
        ]
        self._remember(journal.machines.values(), read_at)
        return [one for one in found if self._is_new(one)]

    def _is_new(self, finding: Finding) -> bool:
        key = (finding.rule, finding.what)
        is_new = key not in self._reported
        self._reported.add(key)
        return is_new

    def _remember(self, records: Iterable[MachineRecord], read_at: float) -> None:
        for record in records:
            if record.presence is Presence.PRESENT and record.machine_id:
                self._present.setdefault((record.name, record.machine_id), read_at)
            if record.state is State.GONE:
                self._gone.setdefault(record.name, read_at)
            if record.state is State.DELETING:
                self._deleting.setdefault(record.name, read_at)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _see_unknown(self, listing: Listing, journal: JournalView) -> Iterator[Finding]:
        records = {record.machine_id for record in journal.machines.values() if record.machine_id}
        for machine in listing.machines:
            if is_ours(machine, self.identity) and machine.name not in journal.machines:
                if machine.machine_id not in records:
                    what = f"the cloud has {_named(machine)}, and the journal has no such machine"
                    yield Finding(rule=Rule.UNKNOWN, what=what)
            elif is_ours(machine, self.identity) and journal.machines[machine.name].state is State.REQUESTED:
                what = f"the cloud has {_named(machine)}, and the journal says that it was never asked for"
                yield Finding(rule=Rule.UNKNOWN, what=what)

    def _see_doubles(self, listing: Listing, journal: JournalView) -> Iterator[Finding]:
        for machine in listing.machines:
            if is_ours(machine, self.identity):
                self.ids[machine.name].setdefault(machine.machine_id, listing.began)
        for (
            record
        ) in journal.machines.values():  # where lists are late, some machines are deleted before one shows them
            if record.presence is Presence.PRESENT and record.machine_id:
                self.ids[record.name].setdefault(record.machine_id, listing.began)
        refused = _refused_creates(journal, self.delay)
        for name, ids in self.ids.items():
            made_by, errors = journal.machines.get(name), refused.get(name, [])
            # A call makes at most one machine, and one that was refused makes none.
            is_broken = bool(errors) and made_by is not None and len(ids) > max(0, made_by.attempts - len(errors))
            if len(ids) > 1:
                yield self._double(name, ids, errors[-1] if is_broken else "")
            elif is_broken:
                what = f"the cloud made {name} ({next(iter(ids))}) in a call after which the driver's error said: "
                # Harmless where the engine may simply ask again.
                is_note = self.traits.idempotency is not Idempotency.NONE
                yield Finding(rule=Rule.REFUSED, what=what + errors[-1], is_note=is_note)

    def _double(self, name: str, ids: Collection[str], refused: str) -> Finding:
        what = f"the cloud made {len(ids)} machines for {name}: {', '.join(sorted(ids))}"
        if self.traits.idempotency is not Idempotency.NONE:
            what += f"; the driver declares idempotency {self.traits.idempotency.value}"
        elif refused:
            what += f"; the driver raised an error that promises that nothing was done: {refused}"
        else:
            what += "; create is declared as not idempotent, so this can happen, and the engine deletes one of them"
            return Finding(rule=Rule.DOUBLE, what=what, is_note=True)
        return Finding(rule=Rule.DOUBLE, what=what)

    def _see_records(
        self, listing: Listing, by_id: Mapping[str, Machine], records: Iterable[MachineRecord]
    ) -> Iterator[Finding]:
        latest = listing.began - self.delay - MARGIN  # what was certain then must be in this list
        for record in records:
            since = self._present.get((record.name, record.machine_id), listing.began)
            machine = by_id.get(record.machine_id)
            if record.state in _AT_WORK and machine is None and since <= latest and listing.tells_of(record.machine_id):
                what = (
                    f"a list does not show {record.name} ({record.machine_id}), which the server calls "
                    f"{record.state.value}, {listing.began - since:.1f} s after its creation was known; "
                    f"list_delay is {self.delay:g} s"
                )
                yield Finding(rule=Rule.MISSING, what=what)
            # One that the journal never had may come from a late create: the engine then deletes it.
            was_there = (record.name, record.machine_id) in self._present
            is_back = was_there and machine is not None and machine.state is not MachineState.DELETING
            if record.state is State.GONE and is_back and self._gone.get(record.name, listing.began) <= latest:
                what = f"{record.name} ({record.machine_id}) counts as gone, and a list shows it {self.delay:g} s later"
                yield Finding(rule=Rule.RETURNED, what=what)
            is_left = machine is not None and machine.state is not MachineState.DELETING
            since = self._deleting.get(record.name, listing.began)
            if record.state is State.DELETING and is_left and since + self.patience <= latest:
                what = f"{record.name} ({record.machine_id}) is still there {self.patience:g} s after it was deleted"
                yield Finding(rule=Rule.DELETED, what=what)

    def _see_marks(
        self, listing: Listing, by_id: Mapping[str, Machine], records: Iterable[MachineRecord]
    ) -> Iterator[Finding]:
        wanted = {record.machine_id: record for record in records if record.state in _AT_WORK and record.machine_id}
        named = {machine.machine_id for machine in listing.machines if machine.name.startswith(self.identity.prefix)}
        for machine_id in named | (wanted.keys() & by_id.keys()):
            lost = self._lost_marks(by_id[machine_id], wanted.get(machine_id))
            first = self._unmarked.setdefault(machine_id, listing.began) if lost else listing.began
            if lost and first <= listing.began - self.delay - MARGIN:
                yield Finding(rule=Rule.MARKS, what=f"a list shows {_named(by_id[machine_id])} {lost}")

    def _lost_marks(self, machine: Machine, record: MachineRecord | None) -> str:
        if self.traits.ownership is Ownership.TAGS and machine.tags.get(TAG_CLUSTER_ID) != self.identity.cluster_id:
            return f"without its tag {TAG_CLUSTER_ID}"
        if self.traits.ownership is Ownership.NAME and record is not None and machine.name != record.name:
            return f"under another name than {record.name}"
        return ""

    def _see_foreign(self, listing: Listing, by_id: Mapping[str, Machine]) -> Iterator[Finding]:
        for machine_id, before in self.foreign.items():
            now = by_id.get(machine_id)
            if now is None and listing.tells_of(machine_id):
                first = self._missing.setdefault(machine_id, listing.began)
                if first <= listing.began - self.delay - MARGIN:
                    yield Finding(rule=Rule.FOREIGN, what=f"{_named(before)} was there before, and is gone")
            elif now is not None:
                self._missing.pop(machine_id, None)
                if dict(now.tags) != dict(before.tags):
                    yield Finding(rule=Rule.FOREIGN, what=f"the tags of {_named(before)} have changed")

    def _see_events(self, events: Sequence[Event]) -> Iterator[Finding]:
        for event in events:
            if event.seq <= self._events:
                continue
            if event.kind == "loss":
                yield Finding(rule=Rule.MISSING, what=f"{event.machine}: {event.message}")
            elif event.kind == "returned":  # a late create, or the list above shows more
                yield Finding(rule=Rule.RETURNED, what=f"{event.machine}: {event.message}", is_note=True)
        self._events = max([self._events, *(event.seq for event in events)])


def _refused_creates(journal: JournalView, delay: float) -> dict[str, list[str]]:
    """The errors of each machine with which a driver promised that a create had done nothing: one for each call."""
    refused: dict[str, list[str]] = defaultdict(list)
    latest: dict[str, float] = {}  # when the last of them was raised
    for event in journal.events:
        if event.kind == "retry" and event.data.get("call") == "create":
            refused[event.machine].append(event.message)
            latest[event.machine] = event.at
    for record in journal.machines.values():
        asked = record.attempt_at
        if asked is not None and latest.get(record.name, -math.inf) < asked and _was_refused_at_the_end(record, delay):
            refused[record.name].append("the cloud did not create it (the machine was no longer wanted by then)")
    return refused


def _was_refused_at_the_end(record: MachineRecord, delay: float) -> bool:
    """Whether only an error of the last create can have ended this machine: no list can tell so soon that it is absent.

    The engine writes no event for it when the machine was already being deleted.
    """
    is_unmade = record.state is State.GONE and record.presence is Presence.NONE and not record.machine_id
    return is_unmade and record.attempt_at is not None and record.state_since < record.attempt_at + delay


def why_not_at_rest(listing: Listing, journal: JournalView, identity: Identity) -> str:
    """What still differs between cloud and server; empty when they agree and nothing is open."""
    live = {
        m.machine_id: m.name for m in listing.machines if is_ours(m, identity) and m.state is not MachineState.DELETING
    }
    here = {r.machine_id: r.name for r in journal.machines.values() if r.state in _AT_WORK}
    waiting = [f"{r.name} is {r.state.value}" for r in journal.machines.values() if r.state in _OPEN]
    if waiting:
        return f"not settled: {', '.join(sorted(waiting))}"
    only_cloud = [f"{name} ({id_})" for id_, name in live.items() if id_ not in here]
    only_here = [f"{name} ({id_})" for id_, name in here.items() if id_ not in live]
    differing = [f"only the cloud has {one}" for one in only_cloud] + [
        f"only the server has {one}" for one in only_here
    ]
    return "; ".join(sorted(differing))


def _named(machine: Machine) -> str:
    return f"{machine.name} ({machine.machine_id})"
