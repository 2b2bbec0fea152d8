"""New records: machines that are asked for, and machines that are found. Pure but for the random part of a name."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.identity import TAG_NAME, Identity, placeholder
from cloudgraft.engine.machines.response_checks import is_storable
from cloudgraft.engine.machines.states import begin, move
from cloudgraft.sdk.driver import DriverTraits, Machine
from cloudgraft.store.records import ErrorRecord, MachineRecord, Presence, State

__all__ = ["found", "taken_back", "wanted"]


def wanted(
    spec: GroupSpec,
    fleet: Fleet,
    identity: Identity,
    traits: DriverTraits,
    now: float,
    *,
    error: ErrorRecord | None = None,
    replaces: str = "",
) -> MachineRecord:
    """A machine that is asked for; with an ``error``, one that will not come and is shown as such (R39)."""
    name = identity.new_name(spec.id)
    while name in fleet.machines:
        name = identity.new_name(spec.id)
    return begin(
        MachineRecord(
            name=name,
            group=spec.id,
            cloud=spec.cloud,
            placeholder=placeholder(spec.cloud, name),
            provider_id=traits.provider_id.replace("{name}", name),
            state=State.REQUESTED if error is None else State.FAILED,
            error=error,
            settings=spec.machine,
            tags=identity.tags(name, spec.id),
            requested_at=now,
            state_since=now,
            hourly=spec.price.amount if spec.price else None,
            currency=spec.price.currency if spec.price else "",
            replaces=replaces,
        )
    )


def found(
    machine: Machine, spec: GroupSpec, fleet: Fleet, now: float, *, is_adopted: bool, taken: Container[str] = ()
) -> MachineRecord:
    """A machine that is there already; ``is_adopted`` when an operator says that it is ours.

    It keeps its name when no other machine has that, neither in the fleet nor among those ``taken`` with it.
    """
    before = now - 0.001  # it was made before it was found, whatever the clock of its cloud says
    created = min(machine.created_at.timestamp(), before) if machine.created_at else before
    own = (machine.name, machine.tags.get(TAG_NAME, ""))
    names = (*own, machine.machine_id, f"{spec.cloud}-{machine.machine_id}")
    name = next((n for n in names if n and is_storable(n) and n not in fleet.machines and n not in taken), names[-1])
    # Under a name of our choice, the name that it has is how it is told from one that is given its id later.
    tags = dict(machine.tags) if name in own else {TAG_NAME: machine.name, **machine.tags}
    return begin(
        MachineRecord(
            name=name,
            group=spec.id,
            cloud=spec.cloud,
            placeholder=placeholder(spec.cloud, name),
            state=State.BOOTING,
            presence=Presence.PRESENT,
            settings=spec.machine,
            tags=tags,
            requested_at=now,
            state_since=now,
            ordered_at=created,
            attempt_at=created,
            attempts=1,
            machine_id=machine.machine_id,
            provider_id=machine.provider_id or "",
            hourly=spec.price.amount if spec.price else None,
            currency=spec.price.currency if spec.price else "",
            is_adopted=is_adopted or name not in own,  # under a name of ours alone, only its id leads back to it
            created_at=machine.created_at.timestamp() if machine.created_at else None,
        )
    )


def taken_back(old: MachineRecord, machine: Machine, spec: GroupSpec, fleet: Fleet, now: float) -> MachineRecord:
    """A machine whose record was at its end, and that an operator says is ours: it goes on under the same name."""
    version = move(old, State.BOOTING, now).version
    fresh = found(machine, spec, fleet, now, is_adopted=True)
    return replace(fresh, name=old.name, placeholder=old.placeholder, version=version)
