"""Which broken machines are replaced. Pure.

The autoscaler does not replace a broken machine of a group at its minimum; this does, slowly: never more than a share
of a group at once, since a cloud that calls half of them broken is more likely wrong itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloudgraft.engine.specs import RepairSettings
from cloudgraft.store.records import MachineRecord

__all__ = ["RepairPlan", "plan_repair"]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What to replace now, and whether more are broken than may be replaced at all."""

    replace: Sequence[MachineRecord] = ()
    is_broken: bool = False


def plan_repair(
    dead: Sequence[tuple[MachineRecord, float]], *, running: int, under_way: int, now: float, settings: RepairSettings
) -> RepairPlan:
    """Decides for one group.

    ``dead`` are its running machines that the cloud reports dead, each with since when; ``running`` is how many it has
    in all, ``under_way`` how many replacements do not run yet.
    """
    due = [record for record, since in dead if now - since >= settings.after.total_seconds()]
    if not settings.enabled or not due:
        return RepairPlan()
    allowed = max(1, int(settings.max_share * running))
    if len(due) > allowed:
        return RepairPlan(is_broken=True)
    oldest = sorted(due, key=lambda record: record.requested_at)
    return RepairPlan(tuple(oldest[: max(0, allowed - under_way)]))
