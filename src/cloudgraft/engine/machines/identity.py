"""Names and tags machines, and proves which machines are ours.

A name contains the cluster, a part of the cluster's generated id and the group. So it identifies the owner even where a
cloud keeps only names, and where tags got lost.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.store.records import MachineRecord, State

TAG_CLUSTER = "cloudgraft-cluster"
TAG_CLUSTER_ID = "cloudgraft-cluster-id"
TAG_GROUP = "cloudgraft-group"
TAG_NAME = "cloudgraft-name"

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_RANDOM = 8  # characters: a name that is taken is drawn again, so collisions only have to be rare
_CLUSTER = 16  # all parts together stay within the 63 characters of a host name
_CLUSTER_ID = 10
_GROUP = 16
_DIGEST = 8  # of a group's id
# Seconds by which a machine's creation time may differ between two lists: some clouds truncate it, some round it.
_PRECISION = 1.0
_CLOCKS_DIFFER = 3600.0  # seconds by which a cloud's clock may be behind ours
# After the cluster: its id, the group, and the random part.
_REST_OF_NAME = rf"([a-z0-9]{{{_CLUSTER_ID}}})-[a-z0-9-]+-[0-9a-f]{{{_DIGEST}}}-[a-z2-7]{{{_RANDOM}}}"


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster that this engine serves."""

    cluster: str
    cluster_id: str
    is_certain: bool = True  # False: the id was generated, perhaps because the journal got lost
    prefix: str = field(init=False)  # of the names of all our machines

    def __post_init__(self) -> None:
        """Builds the prefix once: it is compared with every name of every list."""
        object.__setattr__(self, "prefix", f"{_slug(self.cluster, _CLUSTER)}-{_id_word(self.cluster_id)}-")

    def new_name(self, group: str) -> str:
        """A name for a new machine: letters, digits and dashes, at most 63 characters."""
        suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(_RANDOM))
        return f"{self.prefix}{_group_word(group)}-{suffix}"

    def tags(self, name: str, group: str) -> dict[str, str]:
        """The tags that a machine is created with."""
        return {
            TAG_CLUSTER: self.cluster,
            TAG_CLUSTER_ID: self.cluster_id,
            TAG_GROUP: group,
            TAG_NAME: name,
        }

    def looks_ours(self, machine: Machine) -> bool:
        """Whether tag or name look like ours: no proof, but enough to count it (law 10), since tags get lost."""
        return machine.tags.get(TAG_CLUSTER_ID) == self.cluster_id or machine.name.startswith(self.prefix)

    def is_proven(
        self, machine: Machine, ownership: Ownership, record: MachineRecord | None, *, was_always_there: bool = False
    ) -> bool:
        """Whether the machine is proven to be ours in the way that its driver declares (law 4).

        The mark of another cluster outweighs every other proof. ``was_always_there``: no list has missed the machine
        of this record, so its id cannot have been reused.
        """
        mark = machine.tags.get(TAG_CLUSTER_ID)
        if mark is not None and mark != self.cluster_id:
            return False
        if mark is not None and ownership is not Ownership.NAME:
            return True
        if record is not None and record.is_adopted:
            return _is_as_adopted(machine, record, was_always_there=was_always_there)
        if ownership is Ownership.NAME:
            return machine.name.startswith(self.prefix) and not _is_from_before(machine, record)
        # Two clusters may share an inventory. An inventory without marks lists only machines that its driver may touch.
        return ownership is Ownership.INVENTORY

    def is_for_another(self, machine: Machine, record: MachineRecord) -> bool:
        """Whether a machine is marked or named for another intent: some clouds reuse ids."""
        if machine.tags.get(TAG_CLUSTER_ID, self.cluster_id) != self.cluster_id:
            return True
        name = machine.tags.get(TAG_NAME) or (machine.name if machine.name.startswith(self.prefix) else record.name)
        # A machine adopted under a name of our choice had other marks, or another name, from the beginning.
        return name not in (record.name, record.tags.get(TAG_NAME, record.name))

    def group_of(self, machine: Machine, groups: Iterable[str]) -> str | None:
        """The group that a machine was created for, by its tag, else by its name."""
        tagged = machine.tags.get(TAG_GROUP)
        if tagged is not None:
            return tagged
        rest = machine.name.removeprefix(self.prefix)
        if rest == machine.name:
            return None
        word = rest.rpartition("-")[0]
        return next((group for group in groups if _group_word(group) == word), None)

    def stranger(self, machine: Machine) -> str | None:
        """The id of another cluster with our name, if this machine is marked or named with it."""
        other = machine.tags.get(TAG_CLUSTER_ID)
        if other is None:
            named = re.fullmatch(rf"{re.escape(_slug(self.cluster, _CLUSTER))}-{_REST_OF_NAME}", machine.name)
            return named[1] if named is not None and named[1] != _id_word(self.cluster_id) else None
        return other if machine.tags.get(TAG_CLUSTER) == self.cluster and other != self.cluster_id else None


def placeholder(cloud: str, name: str) -> str:
    """The id that the autoscaler gets for a machine whose providerID is not known yet."""
    return f"cloudgraft://{cloud}/{name}"


def _is_as_adopted(machine: Machine, record: MachineRecord, *, was_always_there: bool) -> bool:
    """Whether an unmarked machine is the one that an operator adopted. Its id alone is no proof: ids are reused."""
    if machine.machine_id != record.machine_id:
        return False
    if record.created_at is None:
        return was_always_there and not record.is_marked
    created = machine.created_at.timestamp() if machine.created_at else None
    return created is not None and abs(created - record.created_at) <= _PRECISION


def _is_from_before(machine: Machine, record: MachineRecord | None) -> bool:
    """Whether a machine with our name is older than our create call, so that somebody else must have created it.

    The machine that the cloud created for a record is identified by its id, while the record is not gone.
    """
    if record is None or machine.created_at is None:
        return False
    if record.state is not State.GONE and machine.machine_id == record.machine_id:
        return False
    ordered = record.requested_at if record.ordered_at is None else record.ordered_at
    return machine.created_at.timestamp() < ordered - _CLOCKS_DIFFER


@lru_cache(maxsize=4096)  # one request may ask for a hundred machines
def _group_word(group: str) -> str:
    """A group's part of a name: readable, and unique for every group, whatever characters its id has."""
    return f"{_slug(group, _GROUP)}-{_digest(group, _DIGEST)}"


def _id_word(cluster_id: str) -> str:
    """A cluster's id in a name: unchanged if it was generated. A configured id may be too long for a name."""
    is_generated = len(cluster_id) == _CLUSTER_ID and cluster_id.isalnum()
    return cluster_id if is_generated else _digest(cluster_id, _CLUSTER_ID)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].rstrip("-") or "x"
