"""Matches renamed machines and machines of renamed clouds to their records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_NAME, Identity
from cloudgraft.engine.machines.observation import Listing
from cloudgraft.engine.machines.response_checks import is_storable
from cloudgraft.engine.machines.states import amend
from cloudgraft.sdk.driver import Machine, Ownership, PartialList
from cloudgraft.store.records import MachineRecord, State

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
