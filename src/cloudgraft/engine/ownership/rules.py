"""Whether a machine may be taken into the journal, out of it, or deleted by an operator's word; and the new record.

Nothing here writes or calls. Each function returns a record, or says in words why not.
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

__all__ = ["Owner", "Refusal", "adopted", "known_as", "released", "trusted", "why_not_delete"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who adopts: the cluster, with all that it has, and how ownership is shown in the machine's cloud."""

    fleet: Fleet
    identity: Identity
    ownership: Ownership


Verdict: TypeAlias = MachineRecord | Refusal


def known_as(machine: Machine, cloud: str, fleet: Fleet) -> MachineRecord | None:
    """The record that stands for a machine, or once did: by its id, else by its name.

    A record that is at its end would go on to delete what turns up under its name: it must be the one that is adopted.
    """
    by_id, by_name = fleet.by_machine_id(cloud, machine.machine_id), fleet.machines.get(machine.name)
    if by_id is not None or by_name is None or by_name.cloud != cloud:
        return by_id
    return by_name if by_name.state is State.GONE and not is_released(by_name) else None


def adopted(
    machine: Machine, group: Group, owner: Owner, now: float, *, observation: Observation | None, taken: Container[str]
) -> Verdict:
    """The record of a machine that is taken into a group by an operator's word.

    ``observation`` is what is known of the machine under a record that is at its end; ``taken`` are names that others
    of the same change have.
    """
    known = known_as(machine, group.spec.cloud, owner.fleet)
    why = _why_not_adopt(machine, group, owner, known)
    if why:
        return Refusal(why)
    if known is not None and known.name in taken:
        return Refusal(f"another machine is being adopted as {known.name}; one of them is one too many")
    if known is None:
        # What proves to be ours needs no word. In an inventory what has no marks does, but its name is not ours.
        is_ours = owner.identity.is_proven(machine, owner.ownership, None) and owner.identity.looks_ours(machine)
        return found(machine, group.spec, owner.fleet, now, is_adopted=not is_ours, taken=taken)
    if observation is not None and observation.is_calling:
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
    """What would make a machine of ours fail, and be deleted for that, is not adopted."""
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


def trusted(record: MachineRecord, observation: Observation | None, identity: Identity) -> Verdict:
    """The record of a machine that does not prove to be ours, and that an operator says is ours all the same."""
    seen = (observation.machine or observation.unproven) if observation is not None else None
    if seen is None:
        return Refusal("its cloud does not show it at present")
    why = _why_of_another(seen, identity)
    if why:
        return Refusal(why)
    if observation is not None and observation.is_ours:
        return Refusal(f"it is in the journal already, as {record.name} of group {record.group}")
    created = seen.created_at.timestamp() if seen.created_at else None
    proof = {"machine_id": seen.machine_id, "created_at": created, "is_marked": False}
    return amend(record, is_adopted=True, presence=Presence.PRESENT, **proof)


def released(record: MachineRecord, observation: Observation | None, now: float) -> Verdict:
    """The record of a machine that an operator takes out of our hands and leaves in its cloud."""
    if is_released(record):
        return Refusal("it was released already")
    if record.state is State.GONE:
        return Refusal("it is gone")
    if observation is not None and observation.is_calling:
        return Refusal("a call about it is under way; try again when that has ended")
    if record.presence is Presence.NONE:
        return Refusal("its cloud holds nothing of it, so there is nothing to release")
    seen = (observation.machine or observation.unproven) if observation is not None else None
    machine_id = record.machine_id or (seen.machine_id if seen is not None else "")
    if not machine_id:
        return Refusal("it is not known yet whether its cloud has it; a list will tell, so try again in a while")
    return move(record, State.GONE, now, presence=Presence.PRESENT, machine_id=machine_id)


def why_not_delete(orphan: Orphan, *, force: bool) -> str:
    """Law 4: only what proves to be ours, or what an operator names with so many words; empty when it may be."""
    if orphan.machine.state is MachineState.DELETING:
        return "its cloud is deleting it already"
    if not orphan.is_proven and not force:
        return "it does not show our marks; if you are certain that it is yours, say --force"
    return ""
