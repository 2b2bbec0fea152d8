"""What a cloud's lists have shown of each machine, and what may be concluded from it. No I/O.

Absence is believed late and on purpose: only after two complete lists, both begun when the machine must have been in
them, and further apart than the cloud's list may lag (law 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.groups.specs import CloudSettings, create_limit
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.states import is_released
from cloudgraft.joining.match import Rivals
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState, PartialList
from cloudgraft.store.records import MachineRecord, Presence, State

__all__ = ["LONGEST_GAP", "Indexing", "Listing", "Looker", "Observation", "believable_from", "look"]

_NEEDED = 2  # complete lists without a machine before it counts as absent
_DEAD = frozenset({MachineState.FAILED, MachineState.STOPPED})
_AWAITED = frozenset({State.CREATING, State.BOOTING})
_NO_RIVALS: Final = Rivals()
LONGEST_GAP: Final = 300.0  # seconds between two looks that count as observed: a process may have been stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One answer of a driver's list, indexed.

    ``began`` is when it was asked for; ``follows`` is when the list before it was, unless one failed in between.
    """

    began: float
    follows: float | None = None
    machines: Sequence[Machine]
    by_name: Mapping[str, Machine]  # one of each name
    by_id: Mapping[str, Machine]
    twins: Mapping[str, Sequence[Machine]]  # all of each name that there is more than once

    @property
    def passed(self) -> float:
        """Seconds observed since the list before; none after a failure, and of a long gap only a part."""
        return 0.0 if self.follows is None else min(self.began - self.follows, LONGEST_GAP)

    @property
    def is_whole(self) -> bool:
        """Whether every machine that there is must be in it."""
        return not isinstance(self.machines, PartialList) or self.machines.is_whole

    def tells_of(self, record: MachineRecord) -> bool:
        """Whether this machine would be in it if it existed; a driver of several clouds may miss one of them."""
        return self.tells_of_id(record.machine_id)

    def tells_of_id(self, machine_id: str) -> bool:
        """The same of a machine with this id; empty when that is not known."""
        return not isinstance(self.machines, PartialList) or self.machines.tells_of(machine_id)

    def named(self, name: str) -> Sequence[Machine]:
        """All machines of that name."""
        found = self.by_name.get(name)
        return () if found is None else self.twins.get(name) or (found,)


class Indexing:
    """A listing in the making. A long one is put together piece by piece, so that calls get their turn in between."""

    def __init__(self) -> None:
        self._by_name: dict[str, Machine] = {}
        self._by_id: dict[str, Machine] = {}
        self._twins: dict[str, list[Machine]] = {}

    def add(self, machines: Sequence[Machine]) -> None:
        """The next machines of the answer. Names are hardly ever there twice: a list for each would be a waste."""
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
        """Of all that was added, which is all of the answer."""
        return Listing(
            began=began,
            follows=follows,
            machines=machines,
            by_name=self._by_name,
            by_id=self._by_id,
            twins=self._twins,
        )


@dataclass(slots=True, kw_only=True)
class Observation:
    """What is known of one machine beside its record. In memory only: after a restart it is looked for anew."""

    since: float  # when we began to look: evidence from before does not exist
    machine: Machine | None = None  # as last seen, proven to be ours
    extras: tuple[Machine, ...] = ()  # others that prove to be the same intent's
    rivals: Rivals = _NO_RIVALS  # which of all these the nodes of the cluster show
    unproven: Machine | None = None  # one of this name or id that does not prove to be ours
    absences: int = 0
    absent_at: float = 0.0  # when the list began that last counted as an absence
    dead_since: float | None = None  # since when the cloud has reported it stopped or failed
    # Time in which lists covered the machine, and only that: an outage costs patience, never a machine.
    listed_at: float | None = None  # when the latest list began that covers it
    awaited_for: float = 0.0  # seconds in which it was not running yet
    dead_for: float = 0.0  # seconds in which it was reported stopped or failed, and no node spoke against that
    is_calling: bool = False  # a call about it is under way
    retry_at: float = 0.0  # no call about it before that
    deletes: int = 0  # calls to delete it that the cloud accepted
    deleted_at: float | None = None  # when one ended that may have worked: its id may be another's since then
    failures: int = 0  # calls to delete it that failed
    was_missing: bool = False  # a list did not have it: what came back under its id has to prove itself again
    is_ours: bool = False  # proven, by the latest list or, before there is one, by the answer to our own create
    joined: bool | None = None  # whether its node is in the cluster; None when the cluster cannot be seen
    node: Node | None = None  # its node, while it is there
    last_node: Node | None = None  # the one that was there last
    is_disputed: bool = False  # it may have one of several nodes, and nobody can tell which
    is_named: bool = False  # a ready node is it by name or id, though it is not known yet whether its cloud has made it
    unready_since: float | None = None  # since when its node has not been ready, as the cluster tells it
    # Time in which the cluster could be seen, and only that: see cloudgraft.engine.nodes.tracking.
    unjoined_for: float = 0.0  # seconds that it has run without a node
    unready_for: float = 0.0  # seconds in which we have seen its node not ready
    unjoined_from: float | None = None
    unready_from: float | None = None
    unready_mark: float | None = None  # the time of the cluster since when it was not ready at unready_from
    unprepared: int = 0  # times in a row that its user data could not be made
    trouble: str = ""  # what kept its cloud from being asked to create it, or what that answered
    told: frozenset[str] = frozenset()  # what was told of it already
    held: str = ""  # why something that was decided about it is not done: a guard, or observeOnly

    @property
    def has_joined(self) -> bool:
        """Whether its node was in the cluster once, as far as we remember."""
        return self.last_node is not None

    @property
    def is_ready(self) -> bool:
        """Whether its node is in the cluster and ready, as a fresh view of the cluster shows it."""
        return self.joined is True and self.unready_since is None

    @property
    def may_be_ready(self) -> bool:
        """Whether its node is ready, or it may have one of several that are."""
        return self.is_ready or self.is_disputed

    @property
    def is_ill(self) -> bool:
        """Its cloud reports it dead, or its node is not ready."""
        return self.dead_since is not None or self.unready_since is not None

    @property
    def is_absent(self) -> bool:
        """Two complete lists did not have it."""
        return self.absences >= _NEEDED

    def forget(self, machine_id: str) -> None:
        """The cloud says that it has no such machine: what was seen of it is history."""
        self.extras = tuple(m for m in self.extras if m.machine_id != machine_id)
        if self.machine is not None and self.machine.machine_id == machine_id:
            self.machine, self.is_ours = None, False
            self.was_missing = True
            self.revive()

    def revive(self) -> None:
        """The cloud does not report it dead any more."""
        self.dead_since, self.dead_for = None, 0.0


def believable_from(
    record: MachineRecord, observation: Observation, traits: DriverTraits, settings: CloudSettings
) -> float:
    """From when on a list must have this machine in it, if it exists."""
    delay = traits.list_delay.total_seconds()
    if record.presence is Presence.UNKNOWN and record.attempt_at is not None:
        # The call that was given up may still be on its way. Where a second create is safe, it may simply be made.
        is_safe = record.state is State.CREATING and traits.idempotency is not Idempotency.NONE
        return record.attempt_at + delay + (0.0 if is_safe else create_limit(settings, traits))
    return max(record.state_since, observation.since) + delay


@dataclass(frozen=True, slots=True)
class Looker:
    """What it takes to read a list."""

    identity: Identity
    traits: DriverTraits
    settings: CloudSettings
    is_doubted: bool = False  # it misses so many machines at once that no absence is believed
    accepted: AbstractSet[str] = frozenset()  # names of machines whose absence is believed all the same
    rivals: Callable[[MachineRecord, Sequence[Machine]], Rivals] = lambda _record, _machines: _NO_RIVALS
    trusts_nodes: bool = True  # False while most nodes are not ready: then that says nothing of any machine
    sees_nodes: bool = True  # False while there is a cluster and its view is not fresh

    def must_show(self, record: MachineRecord, observation: Observation, listing: Listing) -> bool:
        """Whether the machine must be in this list, if it exists."""
        if not self.traits.complete_list and not observation.deletes:
            return False  # such a list proves nothing, unless the cloud has also accepted to delete it
        return listing.began >= believable_from(record, observation, self.traits, self.settings)

    def is_borne_out(self, observation: Observation) -> bool:
        """Whether the cluster says too that something is wrong with the machine."""
        return self.trusts_nodes and observation.unready_since is not None

    def holds_back(self, record: MachineRecord, observation: Observation) -> bool:
        """Whether the absence of this machine is not believed yet."""
        return self.is_doubted and record.name not in self.accepted and not self.is_borne_out(observation)


def look(record: MachineRecord, observation: Observation, listing: Listing, looker: Looker) -> None:
    """Takes in what a list shows of one machine.

    A machine under the id that the journal has is this one, marks or not; but only what proves to be ours may be
    deleted (law 4), and under another id only that is taken for ours at all.
    """
    found = _candidates(record, listing, looker.identity)
    if not listing.tells_of(record) and (not found or _is_elsewhere(record, listing)):
        return  # what was seen before still counts
    passed = _observe(record, observation, listing)
    if not found and looker.is_doubted:
        observation.awaited_for = max(0.0, observation.awaited_for - passed)  # such a list cannot show whether it runs
    if observation.deleted_at is not None and listing.began >= observation.deleted_at:
        observation.deleted_at = None
    always = record.state is not State.GONE and not observation.was_missing
    ownership = looker.traits.ownership
    proven = [m for m in found if looker.identity.is_proven(m, ownership, record, was_always_there=always)]
    ours = [m for m in found if m in proven or m.machine_id == record.machine_id]
    observation.unproven = next((m for m in found if m not in proven), None)
    if not ours:
        observation.is_ours = not found and _is_ours_unseen(record, observation, looker)
        observation.machine, observation.extras = None, ()
        observation.was_missing = True
        observation.revive()
        _count_absence(record, observation, listing, looker, is_there=bool(found))
        return
    observation.rivals = looker.rivals(record, ours) if len(ours) > 1 else _NO_RIVALS
    kept = _kept(record, ours, proven, observation.rivals)
    observation.machine, observation.extras = kept, tuple(m for m in proven if m is not kept)
    observation.absences, observation.is_ours = 0, kept in proven
    if kept.state not in _DEAD:
        observation.revive()
    elif observation.dead_since is None:
        observation.dead_since = listing.began
    elif observation.may_be_ready:
        observation.dead_for = 0.0  # its cloud may be wrong about it
    elif looker.sees_nodes:
        observation.dead_for += passed


def _observe(record: MachineRecord, observation: Observation, listing: Listing) -> float:
    """Counts the seconds since the list before, if both cover the machine and none failed in between."""
    before, observation.listed_at = observation.listed_at, listing.began
    passed = listing.passed if before == listing.follows else 0.0
    observation.awaited_for = observation.awaited_for + passed if record.state in _AWAITED else 0.0
    return passed


def _is_elsewhere(record: MachineRecord, listing: Listing) -> bool:
    """Whether the record has a machine that this list, which is one of a part, does not show.

    Another of its name is a double then, and must not take its place: which is kept is known when both are seen.
    """
    is_known = record.machine_id != "" and record.presence is not Presence.NONE
    return is_known and record.machine_id not in listing.by_id


def _is_ours_unseen(record: MachineRecord, observation: Observation, looker: Looker) -> bool:
    """Whether a machine that no list shows may be deleted by the id that the journal has of it.

    Not yet in the list is no sign that it is not ours; no longer in it is one, for its id may be another's by now.
    Where a list need not show everything, nothing better than the journal's id will ever come; but one that an operator
    adopted was in a list then, and must be seen to be deleted.
    """
    if not looker.traits.complete_list and record.presence is Presence.PRESENT and not record.is_adopted:
        return True
    return observation.is_ours and observation.machine is None


def _candidates(record: MachineRecord, listing: Listing, identity: Identity) -> Sequence[Machine]:
    # One that was taken over was named by others, who may have given its name to several.
    found = () if record.is_adopted else listing.named(record.name)
    if record.state is State.GONE and not record.is_adopted and not is_released(record):
        return found  # the id of one that is gone may be anybody's by now; its name and marks are its own
    by_id = listing.by_id.get(record.machine_id) if record.machine_id else None
    if by_id is None or by_id in found or identity.is_for_another(by_id, record):
        return found
    return (*found, by_id)


def _kept(record: MachineRecord, ours: Sequence[Machine], proven: Sequence[Machine], rivals: Rivals) -> Machine:
    """Of two machines for one intent (law 3): the one that joined, else the one with a known id, else the older.

    Of one that shows our marks and one that only has the id, the latter may be a stranger: a driver that answered a
    create with another machine's id must not cost the machine that it made.
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


def _count_absence(
    record: MachineRecord, observation: Observation, listing: Listing, looker: Looker, *, is_there: bool
) -> None:
    if is_there:
        observation.absences = 0  # it is there, only not provably ours: certainly not absent
        return
    if not looker.must_show(record, observation, listing) or looker.holds_back(record, observation):
        return
    if observation.absences and listing.began < observation.absent_at + looker.traits.list_delay.total_seconds():
        return
    observation.absences += 1
    observation.absent_at = listing.began
