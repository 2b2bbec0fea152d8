"""Defines the journal's records as values: frozen, compared by content, safe to share between threads.

Times are seconds since the epoch (UTC), because they must mean the same after a restart.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal


class State(enum.Enum):
    """The stage of a machine's life. :mod:`cloudgraft.engine.machines.states` lists the allowed transitions."""

    REQUESTED = "requested"  # an intent; no call to the cloud was ever made for it
    CREATING = "creating"  # a call to create it was made, or may have been
    BOOTING = "booting"  # the cloud has accepted it
    RUNNING = "running"
    FAILED = "failed"  # it did not come; shown with its error until the autoscaler or time takes it away
    DELETING = "deleting"
    GONE = "gone"


class Presence(enum.Enum):
    """What the cloud has of a machine, as far as we know. With the state, it decides the next action."""

    NONE = "none"  # nothing: never asked for, refused, or gone
    UNKNOWN = "unknown"  # a call was made and its outcome is not known: a list must settle it
    PRESENT = "present"  # it is there, under a machine id


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """The reason why a machine failed, in the autoscaler's terms."""

    code: str
    message: str
    error_class: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """One intent, and the machine made for it. The name never changes; it is the idempotency token everywhere."""

    name: str
    group: str
    cloud: str
    placeholder: str  # its id for the autoscaler until the providerID is known; an alias of it for life
    state: State
    presence: Presence = Presence.NONE
    settings: Mapping[str, object] = field(default_factory=dict)  # the group's `machine:` section when it was asked for
    tags: Mapping[str, str] = field(default_factory=dict)
    requested_at: float
    state_since: float
    ordered_at: float | None = None  # the first call to create it: from here on it may cost money
    attempt_at: float | None = None  # the latest call to create it
    attempts: int = 0
    gone_at: float | None = None
    machine_id: str = ""  # the cloud's own
    provider_id: str = ""  # what its node carries
    error: ErrorRecord | None = None
    hourly: Decimal | None = None  # its price when it was asked for
    currency: str = ""
    is_adopted: bool = False  # taken over by an operator; the proof that it is ours: Identity.is_proven
    replaces: str = ""  # the name of the broken machine whose place it takes
    version: int = 0  # grows by one with every write
    is_marked: bool = False  # of one that was adopted: a list has shown our marks on it since then
    created_at: float | None = None  # of a machine that was found or adopted: when its cloud says that it was made


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as it was last validly configured, so that it can be served when it is no longer in the file."""

    id: str
    cloud: str
    spec: Mapping[str, object]  # JSON; written and read by cloudgraft.engine.groups.specs
    configured: bool = True  # False: removed from the configuration, draining


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRecord:
    """What the nodes of a group really had: its template when it has no nodes and must scale up from zero."""

    group: str
    settings: Mapping[str, object]  # the `machine:` section of the machines that it was learned from
    since: float  # machines requested earlier do not count: their template was another
    facts: Mapping[str, object]  # JSON; written and read by cloudgraft.engine.nodes.node_facts; empty: nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRecord:
    """A cloud that was listed once and whose machines of ours were recorded. Nothing is created there before that."""

    name: str
    adopted_at: float


class Scope(enum.Enum):
    """The scope of a pause."""

    GROUP = "group"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRecord:
    """No new actions in this group or cloud."""

    scope: Scope
    name: str
    since: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A change requested with an idempotency key, and its answer: a repeated request does not repeat the change.

    It is written with the change, and deleted a day later.
    """

    caller: str  # keys of different callers are independent
    key: str
    fingerprint: str  # of the request: the same key with another request is an error
    answer: Mapping[str, object]  # JSON
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGroup:
    """A node group that an operator declared while we ran, and that is in no file."""

    id: str
    document: Mapping[str, object]  # JSON: an entry of `nodeGroups` as it could stand in the file
    revision: int  # grows by one with every edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The position of the engine's clock, and the boot of the host that it is from. The newest replaces the others."""

    at: float  # by the engine's clock
    boot_id: str  # of the kernel: the same until the host reboots
    boot_time: float  # seconds that the host had run then


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was decided or that happened, and why. One with a ``state`` is a line of a machine's history."""

    at: float
    kind: str  # a word of cloudgraft.engine.new_records
    message: str
    cloud: str = ""
    group: str = ""
    machine: str = ""
    state: State | None = None  # the state that the machine came to be in
    data: Mapping[str, object] = field(default_factory=dict)  # JSON
    seq: int = 0  # given by the journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is written in one transaction: all of it or nothing."""

    machines: Sequence[MachineRecord] = ()  # inserted, or replaced by name
    events: Sequence[Event] = ()
    groups: Sequence[GroupRecord] = ()  # inserted, or replaced by id
    removed_groups: Sequence[str] = ()  # with their learned templates
    learned: Sequence[LearnedRecord] = ()  # inserted, or replaced by group
    clouds: Sequence[CloudRecord] = ()
    pauses: Sequence[PauseRecord] = ()
    resumed: Sequence[tuple[Scope, str]] = ()
    requests: Sequence[RequestRecord] = ()  # inserted, or replaced by caller and key
    removed_requests: Sequence[tuple[str, str]] = ()  # caller and key
    declared: Sequence[DeclaredGroup] = ()  # inserted, or replaced by id
    undeclared: Sequence[str] = ()
    progress: Progress | None = None  # replaces the one before

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, be it an empty list or an empty tuple."""
        return not any(getattr(self, spec.name) for spec in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All of the journal but its events."""

    cluster_id: str
    is_id_new: bool = False  # it was generated and not confirmed: machines of ours may have another id
    machines: Sequence[MachineRecord] = ()
    groups: Sequence[GroupRecord] = ()
    learned: Sequence[LearnedRecord] = ()
    clouds: Sequence[CloudRecord] = ()
    pauses: Sequence[PauseRecord] = ()
    requests: Sequence[RequestRecord] = ()
    declared: Sequence[DeclaredGroup] = ()
    progress: Progress | None = None
    latest_at: float = 0.0  # the largest time in records and events; 0.0 when the journal has none
