"""Limits deletions that nobody ordered: `guards.maxDeletesPerHour`.

Failed machines, broken ones that are replaced, doubles, machines that came back and orphans are deleted by the engine's
own decision, and so perhaps by a mistake of it. What the autoscaler or an operator orders neither counts nor waits.

Each such deletion is an event of kind `removal`, written before the cloud is called: a restart counts these events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cloudgraft.engine.groups.specs import GuardLimits
from cloudgraft.engine.guards import HOUR, GuardUse
from cloudgraft.store.records import Event

__all__ = ["REMOVAL", "DeleteGuard"]

REMOVAL: Final = "removal"  # the kind of the events that count
_NAME: Final = "maxDeletesPerHour"


class DeleteGuard:
    """Counts deletions of the last hour, each machine once however often its cloud is asked."""

    def __init__(self) -> None:
        # By cloud, machine id and name in the journal, since some clouds give ids away again: when.
        self._counted: dict[tuple[str, str, str], float] = {}
        self._limits: dict[str, int] = {}  # by cloud; empty for all of them

    def configure(self, overall: GuardLimits, clouds: Mapping[str, GuardLimits]) -> None:
        """Takes new limits."""
        found = {"": overall, **clouds}
        self._limits = {
            name: limits.max_deletes_per_hour
            for name, limits in found.items()
            if limits.max_deletes_per_hour is not None
        }

    def load(self, events: Iterable[Event], now: float) -> None:
        """Counts what the journal has of the last hour, in place of what was counted before."""
        self._counted = {
            (event.cloud, str(event.data.get("machine_id", "")), event.machine): min(event.at, now) for event in events
        }

    def refusal(self, cloud: str, machine_id: str, now: float, *, name: str = "") -> str:
        """Why this machine may not be deleted now; empty when it may. ``name``: the journal's, if it has one."""
        self._counted = {key: at for key, at in self._counted.items() if at > now - HOUR}
        if (cloud, machine_id, name) in self._counted:
            return ""  # its cloud is asked once more
        for scope, key, end in (
            (cloud, f"clouds.{cloud}.engine.guards", ""),
            ("", "guards", " for all clouds"),
        ):
            limit = self._limits.get(scope)
            if limit is not None and self._used(scope, now) >= limit:
                return f"{key}.{_NAME} is {limit}{end}"
        return ""

    def count(self, cloud: str, machine_id: str, now: float, *, name: str = "") -> bool:
        """A machine is about to be deleted; returns whether that counts, or counted already."""
        key = (cloud, machine_id, name)
        is_new = key not in self._counted
        self._counted.setdefault(key, now)
        return is_new

    def uncount(self, cloud: str, machine_id: str, *, name: str = "") -> None:
        """What was just counted was not deleted: the journal could not be written."""
        self._counted.pop((cloud, machine_id, name), None)

    def use(self, now: float) -> list[GuardUse]:
        """What is used of every limit that is set."""
        return [
            GuardUse(scope=scope, guard=_NAME, used=self._used(scope, now), limit=limit)
            for scope, limit in self._limits.items()
        ]

    def _used(self, scope: str, now: float) -> int:
        return sum(scope in ("", cloud) and at > now - HOUR for (cloud, _, _), at in self._counted.items())
