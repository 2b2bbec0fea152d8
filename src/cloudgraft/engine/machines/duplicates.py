"""Chooses which of several machines for one intent to delete (law 3). Pure.

A machine that joined the cluster may run pods. So no machine with a node is deleted while the kept machine has no ready
node, and none that may have a node is deleted while it is unclear which machine the node belongs to.
"""

from __future__ import annotations

from typing import Final

from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import is_lost
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.store.records import MachineRecord, State

DOUBLE: Final = "double"  # the kind of the events
_WANTED: Final = frozenset({State.REQUESTED, State.CREATING, State.BOOTING, State.RUNNING})


def surplus(record: MachineRecord, observation: Observation, *, sees_nodes: bool) -> Machine | None:
    """The duplicate that may be deleted now. If the intent is no longer wanted, all of its machines are deleted."""
    there = [machine for machine in observation.extras if machine.state is not MachineState.DELETING]
    if _is_wanted(record):
        if not sees_nodes:
            return None
        there = [machine for machine in there if not _may_be_in_use(machine, observation)]
    return there[0] if there else None


def is_outdone(record: MachineRecord, observation: Observation) -> bool:
    """Whether another of its machines has joined since the latest list: the next list makes it the record's own."""
    if observation.machine is None or not _is_wanted(record):
        return False
    others = {machine.machine_id for machine in observation.extras}
    return observation.machine.machine_id not in observation.rivals.any and not others.isdisjoint(
        observation.rivals.ready
    )


def in_doubt(record: MachineRecord, observation: Observation) -> str:
    """The message for an operator when it is unclear which of the machines has joined; empty when it is clear."""
    there = [machine for machine in observation.extras if machine.state is not MachineState.DELETING]
    held = [machine.machine_id for machine in there if _may_be_in_use(machine, observation)]
    if observation.machine is None or not held or not _is_wanted(record) or is_outdone(record, observation):
        return ""
    return (
        f"its cloud has more than one machine for one intent, {observation.machine.machine_id} and {', '.join(held)}, "
        "and nodes of the cluster do not tell which of them to keep, so that none is deleted. Find out which is in "
        "use, and delete the others in the cloud"
    )


def _may_be_in_use(machine: Machine, observation: Observation) -> bool:
    is_kept_ready = observation.machine is not None and observation.machine.machine_id in observation.rivals.ready
    return not is_kept_ready and machine.machine_id in observation.rivals.any


def _is_wanted(record: MachineRecord) -> bool:
    return record.state in _WANTED or is_lost(record)
