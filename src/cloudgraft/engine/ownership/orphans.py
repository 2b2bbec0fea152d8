"""Finds orphans: machines that are in a cloud and not in the journal. Pure.

Nothing here deletes. Orphans are reported, and deleted only by an operator's order or by a policy that is off by
default.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.guards import Stray
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, Identity
from cloudgraft.engine.machines.observation import Listing
from cloudgraft.engine.machines.states import was_released
from cloudgraft.engine.ownership.renames import is_shown_by_both
from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.store.records import MachineRecord, State


class OrphanKind(enum.Enum):
    """Why a machine is an orphan."""

    UNKNOWN = "unknown"  # it is proven to be ours, and the journal does not have it
    UNMARKED = "unmarked"  # it is named like ours but not proven to be
    RELEASED = "released"  # an operator released it, and it still looks like ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One machine, and the group it seems to belong to."""

    cloud: str
    kind: OrphanKind
    machine: Machine
    group: str | None
    is_proven: bool  # proven to be ours, in the way that its driver declares


def find_orphans(
    cloud: str, machines: Iterable[Machine], fleet: Fleet, identity: Identity, ownership: Ownership
) -> list[Orphan]:
    """The machines of a list that look like ours and belong to no record."""
    groups = [group.spec.id for group in fleet.groups.values() if group.spec.cloud == cloud]
    found = []
    for machine in machines:
        by_id = fleet.by_machine_id(cloud, machine.machine_id)
        if by_id is not None and identity.is_for_another(machine, by_id):
            by_id = None  # its id was reused, and our journal is older than that
        if by_id is not None and by_id.state is not State.GONE:
            continue  # nearly all machines, so this check comes first
        is_proven = identity.is_proven(machine, ownership, None)
        known = (by_id, fleet.machines.get(machine.name))
        if not (is_proven or identity.looks_ours(machine)) or _is_known(cloud, machine, known, is_proven):
            continue
        kind = OrphanKind.UNKNOWN if is_proven else OrphanKind.UNMARKED
        if by_id is not None and was_released(by_id):
            kind = OrphanKind.RELEASED
        group = identity.group_of(machine, groups)
        found.append(Orphan(cloud=cloud, kind=kind, machine=machine, group=group, is_proven=is_proven))
    return found


def _is_known(cloud: str, machine: Machine, records: Iterable[MachineRecord | None], is_proven: bool) -> bool:  # noqa: FBT001 - one caller
    """Whether a record has its id; or its name, if it is proven to be ours or still expected under that name."""
    for record in records:
        if record is None or was_released(record):
            continue
        if record.cloud != cloud:  # two clouds of the configuration may show the same account
            if is_proven and record.state is not State.GONE and is_shown_by_both(cloud, machine, record):
                return True
            continue
        if record.state is not State.GONE:
            return True
        # For an adopted machine only the marks are proof. For others, name and inventory are too.
        if is_proven and (not record.is_adopted or TAG_CLUSTER_ID in machine.tags):
            return True
    return False


def strays(orphans: Iterable[Orphan], prices: Mapping[str, float], now: float) -> list[Stray]:
    """Orphans as they count against the guards; one of an unknown group counts at the highest price.

    Released machines do not count: an operator has said that they are no longer ours.
    """
    dearest = max(prices.values(), default=0.0)
    return [
        Stray(
            machine_id=orphan.machine.machine_id,
            created_at=orphan.machine.created_at.timestamp() if orphan.machine.created_at else now,
            hourly=prices.get(orphan.group or "", dearest),
        )
        for orphan in orphans
        if orphan.kind is not OrphanKind.RELEASED
    ]


def strangers(listing: Listing, identity: Identity) -> dict[str, int]:
    """Counts machines of other clusters with our name, by cluster id."""
    counted: dict[str, int] = {}
    for machine in listing.machines:
        other = identity.stranger(machine)
        if other is not None:
            counted[other] = counted.get(other, 0) + 1
    return counted
