"""Finds orphans, which are machines in a cloud and not in the journal, and matches renamed machines. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.guards import Stray
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_NAME, Identity
from cloudgraft.engine.machines.observation import Listing
from cloudgraft.engine.machines.outcomes import is_storable
from cloudgraft.engine.machines.states import amend, was_released
from cloudgraft.sdk.driver import Machine, Ownership, PartialList
from cloudgraft.store.records import MachineRecord, State

# -- renamed machines and clouds ---------------------------------------------------------------------------------------


# -- renamed machines --------------------------------------------------------------------------------------------------
# A machine that was renamed in its cloud still has the journal's name in its marks.


def renamed(machines: Sequence[Machine], identity: Identity, ownership: Ownership) -> list[Machine]:
    """Our machines with another name in their marks. Checks each machine alone, so that a list may come in pieces."""
    return [m for m in machines if m.tags.get(TAG_NAME, m.name) != m.name and _is_ours(m, identity, ownership)]


def known_names(cloud: str, machines: Sequence[Machine], others: Sequence[Machine], fleet: Fleet) -> Sequence[Machine]:
    """A cloud's list in which renamed machines have the journal's name, if the journal can find them only by name.

    ``others`` are the machines that were :func:`renamed`.

    A machine may also be a copy, made by hand with all marks. It does not get the name if there is, or was, another
    machine of that name: it would be taken for a duplicate and deleted (law 4).
    """
    if not others:
        return machines
    shown = {machine.name for machine in machines}
    heirs: dict[str, Machine] = {}
    for machine in sorted(others, key=_age):
        name = machine.tags[TAG_NAME]
        if name not in shown and is_storable(name) and _is_looked_for(cloud, machine, name, fleet):
            heirs.setdefault(name, machine)  # a copy is younger than what it was made from
    named = {machine.machine_id: replace(machine, name=name) for name, machine in heirs.items()}
    result = [named.get(machine.machine_id, machine) for machine in machines]
    if isinstance(machines, PartialList):
        return PartialList(result, complete_for=machines.complete_for, is_whole=machines.is_whole)
    return result


def _is_ours(machine: Machine, identity: Identity, ownership: Ownership) -> bool:
    """Whether the machine is ours. Where names are the proof, a tag is none."""
    name = machine.tags[TAG_NAME]
    is_marked = machine.tags.get(TAG_CLUSTER_ID) == identity.cluster_id
    return isinstance(name, str) and name != "" and is_marked and ownership is not Ownership.NAME


def _is_looked_for(cloud: str, machine: Machine, name: str, fleet: Fleet) -> bool:
    """Whether the journal finds the machine by this name. It needs none if it has the machine's id."""
    known = fleet.by_machine_id(cloud, machine.machine_id)
    if known is not None and known.state is not State.GONE:
        return False
    record = fleet.machines.get(name)
    if record is None or not record.machine_id:
        return True
    if record.cloud == cloud:
        return record.machine_id == machine.machine_id
    return is_shown_by_both(cloud, machine, record)


def is_shown_by_both(cloud: str, machine: Machine, record: MachineRecord) -> bool:
    """Whether a machine is that of another cloud's record. A router gives a machine the id ``cloud/id``.

    A machine that is just being created has no id yet; its name is unique.
    """
    if not record.machine_id:
        return record.name == machine.name
    theirs = (machine.machine_id, f"{cloud}/{machine.machine_id}")
    return record.machine_id in theirs or machine.machine_id == f"{record.cloud}/{record.machine_id}"


def _age(machine: Machine) -> tuple[float, str]:
    return (machine.created_at.timestamp() if machine.created_at else float("inf"), machine.machine_id)


# -- renamed clouds ----------------------------------------------------------------------------------------------------
# When a cloud gets another name in the configuration, its machines keep their records.


def moved_here(
    cloud: str,
    listing: Listing,
    fleet: Fleet,
    identity: Identity,
    ownership: Ownership,
    is_configured: Callable[[str], bool],
) -> list[MachineRecord]:
    """Records of clouds that are no longer configured, and whose machines this list shows, as records of this cloud.

    Only where name, id, marks and group all agree: another account may have the same ids for other machines.
    """
    found = []
    for former, records in fleet.active.items():
        if former == cloud or not records or is_configured(former):
            continue
        for record in records.values():
            machine = listing.by_id.get(record.machine_id) if record.machine_id else None
            group = fleet.groups.get(record.group)
            is_same = machine is not None and machine.name == record.name and not record.is_adopted
            is_here = group is not None and group.spec.cloud == cloud
            if machine is not None and is_same and is_here and identity.is_proven(machine, ownership, record):
                found.append(amend(record, cloud=cloud))
    return found


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
