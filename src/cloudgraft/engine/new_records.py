"""Builds what the engine writes to the journal: records of machines, and events."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.identity import TAG_NAME, Identity, placeholder
from cloudgraft.engine.machines.outcomes import is_storable
from cloudgraft.engine.machines.states import begin, move
from cloudgraft.sdk.driver import DriverTraits, Machine
from cloudgraft.store.records import ErrorRecord, Event, MachineRecord, Presence, State


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


# -- events ------------------------------------------------------------------------------------------------------------
# Every event goes to the journal, the log, a metric and, where one is set, a webhook.


# kind -> (log level, meaning)
KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "increase": (logging.INFO, "the autoscaler requested machines"),
    "decrease": (logging.INFO, "the autoscaler cancelled machines that never came"),
    "delete": (logging.INFO, "the autoscaler deleted machines"),
    "scale": (logging.WARNING, "an operator changed the size of a group"),
    "state": (logging.INFO, "a machine changed its state; a warning when it has failed"),
    "retry": (logging.INFO, "a call to a cloud failed and will be retried; `data.call` is `create` or `delete`"),
    "unsettled": (logging.WARNING, "the outcome of a call is unknown; a list will show it"),
    "adopted": (logging.INFO, "a machine in a cloud was taken into the journal"),
    "double": (
        logging.WARNING,
        "a cloud made two machines for one intent; one of them is being deleted, or it is unclear which may be",
    ),
    "returned": (
        logging.WARNING,
        "a machine that counted as gone exists: it is deleted, or left alone if it is in use",
    ),
    "unproven": (logging.WARNING, "a machine is not proven to be ours, so it is not touched"),
    "unmarked": (logging.WARNING, "marks of an adopted machine could not be set or removed"),
    "orphan": (logging.WARNING, "a machine with our marks is not in the journal"),
    "orphan_deleted": (logging.WARNING, "an orphan is being deleted, by an operator's order or by the policy"),
    "released": (logging.WARNING, "an operator released a machine: it left the journal and stays in its cloud"),
    "guard": (logging.WARNING, "a guard refused a machine, or holds a deletion back"),
    "removal": (
        logging.INFO,
        "the engine deletes a machine without an order; it counts for guards.maxDeletesPerHour",
    ),
    "observed": (logging.WARNING, "an action was withheld because of observeOnly"),
    "repair": (logging.WARNING, "a broken machine is being replaced"),
    "loss": (
        logging.INFO,
        "a machine counts as gone because lists miss it; it counts for engine.massAbsence, also after a restart",
    ),
    "breaker": (
        logging.ERROR,
        "too many machines are reported broken or missing at once, so the report is not believed yet",
    ),
    "breaker_closed": (logging.WARNING, "a report about many machines at once is over, or is believed now"),
    "drift": (logging.WARNING, "nodes of a group differ from its template"),
    "cloud_down": (logging.ERROR, "a cloud does not answer, or refuses us"),
    "cloud_up": (logging.INFO, "a cloud answers again"),
    "cloud_ready": (logging.INFO, "a cloud was listed for the first time and our machines in it were taken in"),
    "list_lag": (
        logging.WARNING,
        "a list showed a machine later than the driver's list_delay allows: the declared delay is too small",
    ),
    "blocked": (logging.ERROR, "a cloud has machines that may be ours under another id; nothing is created there"),
    "paused": (logging.WARNING, "an operator paused a group or a cloud"),
    "resumed": (logging.WARNING, "an operator resumed a group or a cloud"),
    "configured": (logging.INFO, "a group's configuration changed"),
    "draining": (logging.WARNING, "a group is no longer in the configuration but still has machines"),
    "removed": (logging.INFO, "a group that was draining is empty and was removed"),
    "refused_config": (logging.ERROR, "a changed configuration is not valid; the old one stays"),
    "journal_recovered": (logging.WARNING, "the journal can be written again"),
    "undone": (logging.WARNING, "a change had been written although its caller got an error, and was reverted"),
    "clock": (logging.WARNING, "the wall clock was set; durations do not include the jump"),
    "leader": (logging.INFO, "this process became the leader"),
}


def level_of(event: Event) -> int:
    """An event's level for the log and the webhook. A machine's failure has a higher level than other state changes."""
    if event.state is State.FAILED:
        return logging.WARNING
    # The journal may have events of a later release, after a way back.
    return KINDS.get(event.kind, (logging.INFO, ""))[0]


def about(record: MachineRecord, now: float, message: str, *, kind: str = "state", **data: object) -> Event:
    """Builds an event about one machine; kind ``state`` is a line of its history."""
    return Event(
        at=now,
        kind=kind,
        message=message,
        cloud=record.cloud,
        group=record.group,
        machine=record.name,
        state=record.state if kind == "state" else None,
        data=data,
    )


def happened(kind: str, now: float, message: str, *, cloud: str = "", group: str = "", **data: object) -> Event:
    """Builds an event about a group, a cloud, or the whole engine."""
    return Event(at=now, kind=kind, message=message, cloud=cloud, group=group, data=data)
