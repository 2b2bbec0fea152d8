"""Records, machines and observations with defaults, for tests of single decisions."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.identity import Identity, placeholder
from cloudgraft.engine.machines.observation import Indexing, Listing, Observation
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.types import NodeTemplate
from cloudgraft.store.records import MachineRecord, Presence, State

NOW = 1_800_000_000.0
IDENTITY = Identity("test", "abcdefghij")
NAME = f"{IDENTITY.prefix}g-0a1b2c3d-aaaaaaaa"


def a_spec(id_: str = "g", **changes: Any) -> GroupSpec:
    return replace(GroupSpec(id=id_, cloud="sim", min_size=0, max_size=10, template=NodeTemplate()), **changes)


def a_record(name: str = NAME, *, age: float = 0.0, **changes: Any) -> MachineRecord:
    """A record as the engine would have written it, asked for ``age`` seconds ago and in its state since then."""
    state: State = changes.pop("state", State.REQUESTED)
    presence: Presence = changes.pop("presence", Presence.NONE)
    then = NOW - age
    values: dict[str, Any] = {
        "placeholder": placeholder("sim", name),
        "group": "g",
        "cloud": "sim",
        "tags": IDENTITY.tags(name, "g"),
        "requested_at": then,
        "state_since": then,
        "version": 3,
    }
    if presence is Presence.PRESENT:
        values |= {"machine_id": "m-1", "provider_id": "sim://m-1"}
    if state not in (State.REQUESTED, State.FAILED) or presence is not Presence.NONE:
        values |= {"ordered_at": then + 0.001, "attempt_at": then + 0.001, "attempts": 1}
    if state is State.FAILED:
        values["error"] = failure("deadline", "too late")
    if state is State.GONE:
        values["gone_at"] = then
    return MachineRecord(name=name, state=state, presence=presence, **{**values, **changes})


def a_machine(machine_id: str = "m-1", name: str = NAME, **changes: Any) -> Machine:
    """A machine that shows our marks."""
    values: dict[str, Any] = {
        "provider_id": f"sim://{machine_id}",
        "tags": IDENTITY.tags(name, "g"),
        "created_at": datetime.fromtimestamp(NOW - 60, UTC),
        "state": MachineState.RUNNING,
    }
    return Machine(name=name, machine_id=machine_id, **{**values, **changes})


def an_observation(*, since: float = NOW - 1000, **changes: Any) -> Observation:
    """An observation with these fields of its parts: of the lists, the calls and the node."""
    return observed(Observation(since=since), **{"at": NOW, **changes})


def observed(observation: Observation, **changes: Any) -> Observation:
    """The observation with other fields of its parts."""
    for name in ("listed", "calls", "node"):
        part: Any = getattr(observation, name)
        own = {field.name: changes.pop(field.name) for field in fields(part) if field.name in changes}
        observation = replace(observation, **{name: replace(part, **own)})
    assert not changes, f"no part of an observation has {sorted(changes)}"
    return observation


def a_listing(*machines: Machine, began: float = NOW, follows: float | None = None) -> Listing:
    indexing = Indexing()
    indexing.add(machines)
    return indexing.listing(machines, began, follows)
