"""Builds records of requested and of found machines. Pure but for the random part of a name."""

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
    """The record of a requested machine; with an ``error``, one that will not come and is shown as failed (R39)."""
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
    """The record of a machine that exists already; ``is_adopted`` when an operator says that it is ours.

    It keeps its name unless another machine has it, in the fleet or among the names ``taken`` by the same change.
    """
    before = now - 0.001  # it was created before it was found, whatever the clock of its cloud says
    created = min(machine.created_at.timestamp(), before) if machine.created_at else before
    own = (machine.name, machine.tags.get(TAG_NAME, ""))
    names = (*own, machine.machine_id, f"{spec.cloud}-{machine.machine_id}")
    name = next((n for n in names if n and is_storable(n) and n not in fleet.machines and n not in taken), names[-1])
    # If we give it another name, its own name distinguishes it from a machine that gets its id later.
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
            is_adopted=is_adopted or name not in own,  # with a name that only we use, it can be found only by its id
            created_at=machine.created_at.timestamp() if machine.created_at else None,
        )
    )


def taken_back(old: MachineRecord, machine: Machine, spec: GroupSpec, fleet: Fleet, now: float) -> MachineRecord:
    """Reopens the record of a gone machine that an operator says is ours; it keeps its name."""
    version = move(old, State.BOOTING, now).version
    fresh = found(machine, spec, fleet, now, is_adopted=True)
    return replace(fresh, name=old.name, placeholder=old.placeholder, version=version)
