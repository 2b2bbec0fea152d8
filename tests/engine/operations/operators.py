"""A rig of one cloud, and the machines that operators' requests are about."""

from __future__ import annotations

from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_GROUP
from cloudgraft.engine.operations.bulk_operations import Result
from cloudgraft.engine.reporting.findings import FindingKind, all_findings
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import Order, SimMachine
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import MachineRecord, State
from tests.engine.engine_rig import Rig


def stranger(rig: Rig, name: str, **tags: str) -> SimMachine:
    """A machine that somebody else made."""
    machine, _ = rig.cloud.create(Order(name=name, settings=MachineSettings(shape="small"), tags=tags))
    return machine


def lost(rig: Rig, name: str = "lost", group_id: str = "g") -> SimMachine:
    """A machine with our marks that the journal does not have."""
    tags = {TAG_CLUSTER_ID: rig.engine.identity.cluster_id, TAG_GROUP: group_id}
    return stranger(rig, name, **tags)


async def grown(rig: Rig, count: int = 1) -> list[MachineRecord]:
    await rig.provider.increase_size("g", count)
    await rig.settle(5)
    return rig.records(State.RUNNING)


async def kinds(rig: Rig, **query: str) -> list[str]:
    return [event.kind for event in await rig.engine.journal.events(EventQuery(**query))]  # type: ignore[arg-type]


async def found(rig: Rig) -> dict[str, FindingKind]:
    return {finding.machine_id: finding.kind for finding in await all_findings(rig.engine)}


def refused(result: Result) -> list[str]:
    return [item.refused for item in result.items if item.refused]


def node(record: MachineRecord | SimMachine) -> NodeRef:
    return NodeRef(name="n", provider_id=record.provider_id)
