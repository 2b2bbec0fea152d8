"""New records: machines that are asked for, and machines that are found. Pure but for the random part of a name."""

from __future__ import annotations

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.identity import Identity, placeholder
from cloudgraft.engine.specs import GroupSpec
from cloudgraft.engine.states import begin
from cloudgraft.sdk.driver import DriverTraits, Machine
from cloudgraft.store.records import ErrorRecord, MachineRecord, Presence, State

__all__ = ["found", "wanted"]


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
            provider_id=traits.provider_id.format(name=name) if traits.provider_id else "",
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


def found(machine: Machine, spec: GroupSpec, fleet: Fleet, now: float, *, is_adopted: bool) -> MachineRecord:
    """A machine that is there already; ``is_adopted`` when an operator says that it is ours."""
    created = machine.created_at.timestamp() if machine.created_at else now
    name = machine.name if machine.name and machine.name not in fleet.machines else machine.machine_id
    return begin(
        MachineRecord(
            name=name,
            group=spec.id,
            cloud=spec.cloud,
            placeholder=placeholder(spec.cloud, name),
            state=State.BOOTING,
            presence=Presence.PRESENT,
            settings=spec.machine,
            tags=dict(machine.tags),
            requested_at=now,
            state_since=now,
            ordered_at=created,
            attempt_at=created,
            attempts=1,
            machine_id=machine.machine_id,
            provider_id=machine.provider_id or "",
            hourly=spec.price.amount if spec.price else None,
            currency=spec.price.currency if spec.price else "",
            is_adopted=is_adopted,
        )
    )
