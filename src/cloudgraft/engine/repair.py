"""Which broken machines are replaced. Pure.

The autoscaler does not replace a broken machine of a group at its minimum; this does, slowly: never more than a share
of a group at once, since a cloud that calls half of them broken is more likely wrong itself. The same holds for a node
that has not been ready for long, after the autoscaler has had its time to remove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloudgraft.engine.sight import Sight
from cloudgraft.engine.specs import RepairSettings
from cloudgraft.store.records import MachineRecord

__all__ = ["RepairPlan", "due_at", "plan_repair"]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What to replace now, and whether more are broken than may be replaced at all."""

    replace: Sequence[MachineRecord] = ()
    is_broken: bool = False


def due_at(sight: Sight, settings: RepairSettings, now: float) -> float | None:
    """From when on a running machine is to be replaced; None while nothing is wrong with it.

    Only time counts in which lists reported it dead; a node that is ready says that it is not. A node that is not ready
    must have been so for long as the cluster tells it, whose clock may be another, and for a while as we have seen it
    ourselves.
    """
    times = []
    if sight.dead_since is not None and not sight.is_ready:
        times.append(now + settings.after.total_seconds() - sight.dead_for)
    if sight.unready_since is not None and settings.not_ready_after:
        seen = now + settings.after.total_seconds() - sight.unready_for
        times.append(max(seen, sight.unready_since + settings.not_ready_after.total_seconds()))
    return min(times, default=None)


def plan_repair(
    broken: Sequence[tuple[MachineRecord, float]], *, running: int, under_way: int, now: float, settings: RepairSettings
) -> RepairPlan:
    """Decides for one group.

    ``broken`` are its running machines with which something is wrong, each with when it is due; ``running`` is how
    many it has in all, ``under_way`` how many replacements do not run yet.
    """
    due = [record for record, at in broken if now >= at]
    if not settings.enabled or not due:
        return RepairPlan()
    allowed = max(1, int(settings.max_share * running))
    if len(due) > allowed:
        return RepairPlan(is_broken=True)
    oldest = sorted(due, key=lambda record: record.requested_at)
    return RepairPlan(tuple(oldest[: max(0, allowed - under_way)]))
