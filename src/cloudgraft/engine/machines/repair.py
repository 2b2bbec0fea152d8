"""Chooses which broken machines to replace. Pure.

The autoscaler does not replace a broken machine of a group at its minimum. The engine does, slowly: never more than a
share of a group at once, and none while the group's breaker is open. The same applies to a node that has not been ready
for long, after the autoscaler has had its time to remove it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.engine.groups.specs import RepairSettings
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.store.records import MachineRecord


def due_at(observation: Observation, settings: RepairSettings, now: float) -> float | None:
    """When to replace a running machine; None while nothing is wrong with it.

    Only time counts in which lists reported it dead and the cluster could be seen. A ready node contradicts the cloud
    and resets that time. A node that is not ready must have been seen so by this process for the whole time, because
    the cluster's clock may differ. So a restart delays a replacement.
    """
    times = []
    if observation.listed.dead_since is not None and not observation.node.may_be_ready:
        times.append(now + settings.after.total_seconds() - observation.listed.dead_for)
    if observation.node.unready_since is not None and settings.not_ready_after:
        times.append(now + settings.not_ready_after.total_seconds() - observation.node.unready_for)
    return min(times, default=None)


def plan_repair(
    due: Sequence[MachineRecord], *, running: int, under_way: int, settings: RepairSettings
) -> Sequence[MachineRecord]:
    """The machines of one group to replace now, of those that are due.

    ``running`` is the number of its running machines, ``under_way`` that of replacements which do not run yet.
    """
    allowed = max(1, int(settings.max_share * running))
    return sorted(due, key=lambda record: record.requested_at)[: max(0, allowed - under_way)]
