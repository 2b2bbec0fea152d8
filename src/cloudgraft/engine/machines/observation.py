"""Evaluates a cloud's lists, machine by machine. No I/O.

Absence is believed late on purpose: only after two complete lists, both started when the machine must have been in
them, and further apart than the cloud's list may lag (law 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from cloudgraft.engine.groups.specs import CloudSettings, create_limit
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.states import LOST, VANISHED, is_lost, is_released
from cloudgraft.joining.match import Rivals
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState, PartialList
from cloudgraft.store.records import MachineRecord, Presence, State

_NEEDED = 2  # complete lists without a machine before it counts as absent
_DEAD = frozenset({MachineState.FAILED, MachineState.STOPPED})
_AWAITED = frozenset({State.CREATING, State.BOOTING})
_STEADY = frozenset({State.BOOTING, State.RUNNING})  # the cloud has it, and no call is to change that
_NO_RIVALS: Final = Rivals()
LONGEST_GAP: Final = 300.0  # seconds between two lists that count as observed, at most: a process may be stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One result of a driver's list, indexed.

    ``began`` is the time of the call; ``follows`` is the time of the call before, unless one failed in between.
    """

    began: float
    follows: float | None = None
    machines: Sequence[Machine]
    by_name: Mapping[str, Machine]  # one machine per name
    by_id: Mapping[str, Machine]
    twins: Mapping[str, Sequence[Machine]]  # all machines of names that occur more than once

    @property
    def passed(self) -> float:
        """Observed seconds since the list before: zero after a failure, and only a part of a long gap."""
        return 0.0 if self.follows is None else min(self.began - self.follows, LONGEST_GAP)

    @property
    def is_whole(self) -> bool:
        """Whether every existing machine must be in the list."""
        return not isinstance(self.machines, PartialList) or self.machines.is_whole

    def tells_of(self, record: MachineRecord) -> bool:
        """Whether the list would show this machine if it existed; a driver of several clouds may miss one of them."""
        return self.tells_of_id(record.machine_id)

    def tells_of_id(self, machine_id: str) -> bool:
        """The same for a machine with this id; the id is empty when it is not known."""
        return not isinstance(self.machines, PartialList) or self.machines.tells_of(machine_id)

    def named(self, name: str) -> Sequence[Machine]:
        """All machines with that name."""
        found = self.by_name.get(name)
        return () if found is None else self.twins.get(name) or (found,)


class Indexing:
    """Builds a listing piece by piece, so that a long one does not block the event loop."""

    def __init__(self) -> None:
        self._by_name: dict[str, Machine] = {}
        self._by_id: dict[str, Machine] = {}
        self._twins: dict[str, list[Machine]] = {}

    def add(self, machines: Sequence[Machine]) -> None:
        """Adds the next machines of the result. Duplicate names are rare, so there is no list for each name."""
        named = {machine.name: machine for machine in machines}
        if len(named) < len(machines) or not self._by_name.keys().isdisjoint(named):
            for machine in machines:
                self._add_twin(machine)
        else:
            self._by_name.update(named)
        self._by_id.update((machine.machine_id, machine) for machine in machines)

    def _add_twin(self, machine: Machine) -> None:
        other = self._by_name.get(machine.name)
        if other is not None:
            self._twins.setdefault(machine.name, [other]).append(machine)
        self._by_name[machine.name] = machine

    def listing(self, machines: Sequence[Machine], began: float, follows: float | None = None) -> Listing:
        """The listing, after all machines of the result were added."""
        return Listing(
            began=began,
            follows=follows,
            machines=machines,
            by_name=self._by_name,
            by_id=self._by_id,
            twins=self._twins,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What the lists of a cloud showed of one machine. :func:`look` writes it.

    The outcome of a call only takes back what earlier lists showed: see :func:`.outcomes.after_call`.
    """

    machine: Machine | None = None  # as last seen, proven to be ours
    extras: tuple[Machine, ...] = ()  # others that are proven to belong to the same intent
    unproven: Machine | None = None  # one of this name or id that is not proven to be ours
    is_ours: bool = False  # proven, by the latest list or, before there is one, by the answer to our own create
    was_missing: bool = False  # a list missed it: a machine that returns under its id has to be proven again
    absences: int = 0
    absent_at: float = 0.0  # start of the latest list that counted as an absence
    missed_at: float | None = None  # start of the latest list that had to show it and did not, believed or not
    dead_since: float | None = None  # since when the cloud has reported it stopped or failed
    # Only time in which lists covered the machine: an outage delays decisions, and never costs a machine.
    at: float | None = None  # start of the latest list that covers it
    awaited_for: float = 0.0  # seconds in which it was not running yet
    dead_for: float = 0.0  # seconds in which it was reported stopped or failed, and no ready node contradicted that

    @property
    def is_absent(self) -> bool:
        """Whether two complete lists missed it."""
        return self.absences >= _NEEDED

    def without(self, machine_id: str) -> Listed:
        """The same without this machine: the cloud says that it does not exist."""
        extras = tuple(m for m in self.extras if m.machine_id != machine_id)
        if self.machine is None or self.machine.machine_id != machine_id:
            return replace(self, extras=extras)
        return replace(
            self, extras=extras, machine=None, is_ours=False, was_missing=True, dead_since=None, dead_for=0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What calls about one machine showed. :func:`.outcomes.after_call` writes it."""

    is_open: bool = False  # a call is under way
    retry_at: float = 0.0  # no call before that
    unsettled_at: float | None = None  # end of the latest call to create it whose outcome is unknown
    deletes: int = 0  # calls to delete it that the cloud accepted
    deleted_at: float | None = None  # end of the latest call that may have deleted it
    failures: int = 0  # calls to delete it that failed
    unprepared: int = 0  # consecutive failures to make its user data
    trouble: str = ""  # why the cloud was not called to create it, or the cloud's error


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What the cluster showed of one machine's node. :meth:`.tracking.Nodes.see` writes it."""

    joined: bool | None = None  # whether its node is in the cluster; None when the cluster cannot be seen
    current: Node | None = None  # its node, while it is there
    last: Node | None = None  # the one that was there last
    rivals: Rivals = _NO_RIVALS  # which of several machines for one intent have nodes in the cluster
    is_disputed: bool = False  # it may have one of several nodes, and it is unclear which
    is_named: bool = False  # a ready node has its name or id, before it is known whether its cloud has created it
    unready_since: float | None = None  # since when its node has not been ready, by the cluster's data
    # Only time in which the cluster could be seen: see cloudgraft.engine.nodes.tracking.
    unjoined_for: float = 0.0  # seconds that it has run without a node
    unready_for: float = 0.0  # seconds in which its node was seen not ready
    unjoined_from: float | None = None
    unready_from: float | None = None
    unready_mark: float | None = None  # the time of the cluster since when it was not ready at unready_from

    @property
    def has_joined(self) -> bool:
        """Whether its node has been in the cluster, as far as this process remembers."""
        return self.last is not None

    @property
    def is_ready(self) -> bool:
        """Whether its node is in the cluster and ready, by fresh data."""
        return self.joined is True and self.unready_since is None

    @property
    def may_be_ready(self) -> bool:
        """Whether its node is ready, or it may have one of several that are."""
        return self.is_ready or self.is_disputed


_NOT_LISTED: Final = Listed()
_NOT_CALLED: Final = Calls()
_NO_NODE: Final = NodeView()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of one machine beside its record. In memory only: after a restart it is observed again."""

    since: float  # when observation began: there is no evidence from before
    listed: Listed = _NOT_LISTED
    calls: Calls = _NOT_CALLED
    node: NodeView = _NO_NODE

    # dataclasses.replace takes three times as long, and there may be thousands of machines.

    def with_listed(self, listed: Listed) -> Observation:
        """The same after one more list."""
        return Observation(since=self.since, listed=listed, calls=self.calls, node=self.node)

    def with_node(self, node: NodeView) -> Observation:
        """The same after one more look at the cluster."""
        return Observation(since=self.since, listed=self.listed, calls=self.calls, node=node)

    @property
    def is_ill(self) -> bool:
        """Whether its cloud reports it dead, or its node is not ready."""
        return self.listed.dead_since is not None or self.node.unready_since is not None

    @property
    def is_deletion_open(self) -> bool:
        """Whether no list has begun since a call that may have deleted it: its id may have been reused meanwhile."""
        deleted, listed = self.calls.deleted_at, self.listed.at
        return deleted is not None and (listed is None or listed < deleted)


def believable_from(
    record: MachineRecord, observation: Observation, traits: DriverTraits, settings: CloudSettings
) -> float:
    """From when on a list must contain this machine, if it exists."""
    delay = traits.list_delay.total_seconds()
    if record.presence is Presence.UNKNOWN and record.attempt_at is not None:
        # The abandoned call may still be on its way. Where a second create is safe, it may simply be made.
        is_safe = record.state is State.CREATING and traits.idempotency is not Idempotency.NONE
        if is_safe:
            return record.attempt_at + delay
        # A call may have waited for its turn before its time began. Then it ended later than its limit says.
        limit = record.attempt_at + create_limit(settings, traits)
        return max(limit, observation.calls.unsettled_at or limit) + delay
    return max(record.state_since, observation.since) + delay


@dataclass(frozen=True, slots=True)
class Looker:
    """The context for reading a list."""

    identity: Identity
    traits: DriverTraits
    settings: CloudSettings
    is_doubted: bool = False  # the list misses so many machines at once that no absence is believed
    accepted: AbstractSet[str] = frozenset()  # names of machines whose absence is believed all the same
    rivals: Callable[[MachineRecord, Sequence[Machine]], Rivals] = lambda _record, _machines: _NO_RIVALS
    trusts_nodes: bool = True  # False while most nodes are not ready: then that says nothing about a single machine
    sees_nodes: bool = True  # False while there is a cluster whose data are not fresh

    def must_show(self, record: MachineRecord, observation: Observation, listing: Listing) -> bool:
        """Whether this list must contain the machine, if it exists."""
        if not self.traits.complete_list and not observation.calls.deletes:
            return False  # such a list proves nothing, unless the cloud has also accepted to delete it
        return listing.began >= believable_from(record, observation, self.traits, self.settings)

    def is_borne_out(self, observation: Observation) -> bool:
        """Whether the cluster confirms that something is wrong with the machine."""
        return self.trusts_nodes and observation.node.unready_since is not None

    def holds_back(self, record: MachineRecord, observation: Observation) -> bool:
        """Whether the absence of this machine is not believed yet."""
        return self.is_doubted and record.name not in self.accepted and not self.is_borne_out(observation)


def look(record: MachineRecord, observation: Observation, listing: Listing, looker: Looker) -> Listed:
    """What is known of a machine after one more list.

    A machine with the id that the journal has is this one, with or without marks. But only a machine that is proven to
    be ours may be deleted (law 4), and one with another id must be proven to count as ours at all.
    """
    before, found = observation.listed, _candidates(record, listing, looker.identity)
    if not listing.tells_of(record) and (not found or _is_elsewhere(record, listing)):
        return before  # the earlier observation still counts
    # Seconds count between two lists that both cover the machine, if no list failed in between.
    passed = listing.passed if before.at == listing.follows else 0.0
    is_awaited, is_counted = record.state in _AWAITED, bool(found) or not looker.is_doubted
    awaited_for = before.awaited_for + (passed if is_counted else 0.0) if is_awaited else 0.0
    always = record.state is not State.GONE and not before.was_missing
    ownership = looker.traits.ownership
    proven = [m for m in found if looker.identity.is_proven(m, ownership, record, was_always_there=always)]
    ours = [m for m in found if m in proven or m.machine_id == record.machine_id]
    unproven = next((m for m in found if m not in proven), None)
    if not ours:
        absences, absent_at = _absences(record, observation, listing, looker, is_there=bool(found))
        is_missed = not found and looker.must_show(record, observation, listing)
        return Listed(
            missed_at=listing.began if is_missed else before.missed_at,
            unproven=unproven,
            is_ours=not found and _is_ours_unseen(record, before, looker),
            was_missing=True,
            absences=absences,
            absent_at=absent_at,
            at=listing.began,
            awaited_for=awaited_for,
        )
    kept = _kept(record, ours, proven, looker.rivals(record, ours) if len(ours) > 1 else _NO_RIVALS)
    dead_since, dead_for = before.dead_since, before.dead_for
    if kept.state not in _DEAD:
        dead_since, dead_for = None, 0.0
    elif dead_since is None:
        dead_since = listing.began
    elif observation.node.may_be_ready:
        dead_for = 0.0  # its cloud may be wrong about it
    elif looker.sees_nodes:
        dead_for += passed
    return Listed(
        machine=kept,
        extras=tuple(m for m in proven if m is not kept),
        unproven=unproven,
        is_ours=kept in proven,
        was_missing=before.was_missing,
        absent_at=before.absent_at,
        dead_since=dead_since,
        dead_for=dead_for,
        at=listing.began,
        awaited_for=awaited_for,
    )


def observed_lag(record: MachineRecord, before: Listed, after: Listed, listing: Listing) -> float:
    """By how many seconds lists lag, at least, as this list shows; 0 when it shows nothing of that.

    A list shows a machine that an earlier one missed, although that one had to show it: so the driver's ``list_delay``
    is too small. Not for a create of unknown outcome, which may have taken long, nor for a machine being deleted.
    """
    has_failed_by_lists = record.error is not None and record.error.code in (LOST, VANISHED)
    if after.machine is None or not after.is_ours or not (record.state in _STEADY or has_failed_by_lists):
        return 0.0
    # The observation of a gone machine may have been forgotten.
    missed_at = record.state_since if record.state is State.GONE else before.missed_at
    if missed_at is None:
        return 0.0
    # A new machine is late since it was created. One that ran was in lists before, and is late since one missed it.
    is_new = record.state is not State.RUNNING and not is_lost(record) and record.attempt_at is not None
    return max(0.0, listing.began - (record.attempt_at or 0.0 if is_new else missed_at))


def _is_elsewhere(record: MachineRecord, listing: Listing) -> bool:
    """Whether the record's machine is in a part of the cloud that this partial list does not show.

    Then another machine of its name is a duplicate, and must not replace it: the choice needs a list of both.
    """
    is_known = record.machine_id != "" and record.presence is not Presence.NONE
    return is_known and record.machine_id not in listing.by_id


def _is_ours_unseen(record: MachineRecord, before: Listed, looker: Looker) -> bool:
    """Whether a machine that no list shows may be deleted by the id that the journal has of it.

    A machine that was never listed proves nothing. One that vanished may have had its id reused.
    Where a list need not show everything, there is no better proof than the journal's id. But an adopted machine was in
    a list when it was adopted, so a list must show it before it is deleted.
    """
    if not looker.traits.complete_list and record.presence is Presence.PRESENT and not record.is_adopted:
        return True
    return before.is_ours and before.machine is None


def _candidates(record: MachineRecord, listing: Listing, identity: Identity) -> Sequence[Machine]:
    # An adopted machine was named by others, who may have used the name several times.
    found = () if record.is_adopted else listing.named(record.name)
    if record.state is State.GONE and not record.is_adopted and not is_released(record):
        return found  # the id of a gone machine may have been reused; its name and marks are its own
    by_id = listing.by_id.get(record.machine_id) if record.machine_id else None
    if by_id is None or by_id in found or identity.is_for_another(by_id, record):
        return found
    return (*found, by_id)


def _kept(record: MachineRecord, ours: Sequence[Machine], proven: Sequence[Machine], rivals: Rivals) -> Machine:
    """Of two machines for one intent (law 3): the one that joined, else the one with a known id, else the older.

    A machine with our marks takes precedence over one that only has the id, which may not be ours: a driver that
    answered a create with another machine's id must not cost the machine that it created.
    """
    known = next((machine for machine in ours if machine.machine_id == record.machine_id), None)
    if known is not None and (
        known.machine_id in rivals.joined or (record.state is State.RUNNING and not rivals.joined)
    ):
        return known
    nodes = rivals.ready or rivals.joined
    joined = [machine for machine in ours if machine.machine_id in nodes]
    return min(joined or proven or ours, key=_age)


def _age(machine: Machine) -> tuple[float, str]:
    return (machine.created_at.timestamp() if machine.created_at else float("inf"), machine.machine_id)


def _absences(
    record: MachineRecord, observation: Observation, listing: Listing, looker: Looker, *, is_there: bool
) -> tuple[int, float]:
    """How many lists have missed the machine, with this one, and the start of the latest that counts."""
    count, latest = observation.listed.absences, observation.listed.absent_at
    if is_there:
        return 0, latest  # it exists, though unproven: certainly not absent
    if not looker.must_show(record, observation, listing) or looker.holds_back(record, observation):
        return count, latest
    if count and listing.began < latest + looker.traits.list_delay.total_seconds():
        return count, latest
    return count + 1, listing.began
