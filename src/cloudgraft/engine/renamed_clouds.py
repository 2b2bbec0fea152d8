"""A cloud that got another name in the configuration: its machines are the same, and keep their records. Pure."""

from __future__ import annotations

from collections.abc import Callable

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.observation import Listing
from cloudgraft.engine.machines.states import amend
from cloudgraft.sdk.driver import Ownership
from cloudgraft.store.records import MachineRecord

__all__ = ["moved_here"]


def moved_here(
    cloud: str,
    listing: Listing,
    fleet: Fleet,
    identity: Identity,
    ownership: Ownership,
    is_configured: Callable[[str], bool],
) -> list[MachineRecord]:
    """Records of clouds that are no longer configured whose machines this list shows, as records of this cloud.

    Only where name, id, marks and group all agree: another account may well give the same ids to other machines.
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
