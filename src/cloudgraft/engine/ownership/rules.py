"""Decides whether an operator may adopt, release or delete a machine, and builds the new record.

Nothing here writes or calls. Each function returns a record, or the reason for the refusal.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TypeAlias

from cloudgraft.engine.fleet import Fleet, Group
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, Identity
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import amend, is_released, move
from cloudgraft.engine.new_records import found, taken_back
from cloudgraft.engine.ownership.orphans import Orphan
from cloudgraft.sdk.driver import Machine, MachineState, Ownership
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import MachineRecord, Presence, State


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for a refusal."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The adopting cluster with its fleet, and how ownership is proven in the machine's cloud."""

    fleet: Fleet
    identity: Identity
    ownership: Ownership


RecordOrRefusal: TypeAlias = MachineRecord | Refusal


def known_as(machine: Machine, cloud: str, fleet: Fleet) -> MachineRecord | None:
    """The current or former record of a machine: by its id, else by its name.

    A gone record would delete a machine that shows up under its name. So that record must be adopted.
    """
    by_id, by_name = fleet.by_machine_id(cloud, machine.machine_id), fleet.machines.get(machine.name)
    if by_id is not None or by_name is None or by_name.cloud != cloud:
        return by_id
    return by_name if by_name.state is State.GONE and not is_released(by_name) else None


def adopted(
    machine: Machine, group: Group, owner: Owner, now: float, *, observation: Observation | None, taken: Container[str]
) -> RecordOrRefusal:
    """The record of a machine that an operator adopts into a group.

    ``observation`` is that of the machine's gone record, if it has one; ``taken`` are names used by the same change.
    """
    known = known_as(machine, group.spec.cloud, owner.fleet)
    why = _why_not_adopt(machine, group, owner, known)
    if why:
        return Refusal(why)
    if known is not None and known.name in taken:
        return Refusal(f"another machine is being adopted as {known.name}; one of them is one too many")
    if known is None:
        # A proven machine does not count as adopted. An inventory proves unmarked machines too, without a name of ours.
        is_ours = owner.identity.is_proven(machine, owner.ownership, None) and owner.identity.looks_ours(machine)
        return found(machine, group.spec, owner.fleet, now, is_adopted=not is_ours, taken=taken)
    if observation is not None and observation.calls.is_open:
        return Refusal("its cloud is being asked to delete it at this moment")
    return taken_back(known, machine, group.spec, owner.fleet, now)


def _why_not_adopt(machine: Machine, group: Group, owner: Owner, known: MachineRecord | None) -> str:
    if known is not None and known.state is not State.GONE:
        return f"it is in the journal already, as {known.name} of group {known.group}"
    why = _why_of_another(machine, owner.identity)
    if why:
        return why
    namesake = owner.fleet.in_cloud(group.spec.cloud).get(machine.name)
    if namesake is not None and not namesake.is_adopted:
        return f"the journal has {namesake.name} of group {namesake.group} by this name; release that first"
    return _why_unfit(machine, owner)


def _why_unfit(machine: Machine, owner: Owner) -> str:
    """Refuses a machine that would fail as ours, and so be deleted."""
    if machine.state is not MachineState.RUNNING:
        return f"its cloud reports it as {machine.state.value}; only a running machine can be adopted"
    if not machine.provider_id:
        return "its cloud does not tell its providerID, so that its node cannot be found"
    holder = owner.fleet.find(NodeRef(name="", provider_id=machine.provider_id))
    if holder is not None and holder.state is not State.GONE:
        return f"its providerID is that of {holder.name} of group {holder.group}"
    return ""


def _why_of_another(machine: Machine, identity: Identity) -> str:
    other = machine.tags.get(TAG_CLUSTER_ID)
    if other in (None, identity.cluster_id):
        return ""
    return f"it is marked as a machine of another cluster, with the id {other}; take that tag off it first"


def trusted(record: MachineRecord, observation: Observation | None, identity: Identity) -> RecordOrRefusal:
    """The record of an unproven machine that an operator says is ours."""
    seen = (observation.listed.machine or observation.listed.unproven) if observation is not None else None
    if seen is None:
        return Refusal("its cloud does not show it at present")
    why = _why_of_another(seen, identity)
    if why:
        return Refusal(why)
    if observation is not None and observation.listed.is_ours:
        return Refusal(f"it is in the journal already, as {record.name} of group {record.group}")
    created = seen.created_at.timestamp() if seen.created_at else None
    proof = {"machine_id": seen.machine_id, "created_at": created, "is_marked": False}
    return amend(record, is_adopted=True, presence=Presence.PRESENT, **proof)


def released(record: MachineRecord, observation: Observation | None, now: float) -> RecordOrRefusal:
    """The record of a machine that an operator releases."""
    if is_released(record):
        return Refusal("it was released already")
    if record.state is State.GONE:
        return Refusal("it is gone")
    if observation is not None and observation.calls.is_open:
        return Refusal("a call about it is under way; try again when that has ended")
    if record.presence is Presence.NONE:
        return Refusal("its cloud holds nothing of it, so there is nothing to release")
    seen = (observation.listed.machine or observation.listed.unproven) if observation is not None else None
    machine_id = record.machine_id or (seen.machine_id if seen is not None else "")
    if not machine_id:
        return Refusal("it is not known yet whether its cloud has it; a list will tell, so try again in a while")
    return move(record, State.GONE, now, presence=Presence.PRESENT, machine_id=machine_id)


def why_not_delete(orphan: Orphan, *, force: bool) -> str:
    """Law 4: why an orphan may not be deleted; empty when it is proven to be ours, or forced."""
    if orphan.machine.state is MachineState.DELETING:
        return "its cloud is deleting it already"
    if not orphan.is_proven and not force:
        return "it does not show our marks; if you are certain that it is yours, say --force"
    return ""
