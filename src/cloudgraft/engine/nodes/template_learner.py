"""Learns node templates from the nodes of one cloud, and reports drift."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.nodes.drift import Drift, find_drift
from cloudgraft.engine.nodes.learned_templates import LearnedTemplates, same_settings
from cloudgraft.engine.nodes.node_facts import Specimen, facts_to_json, learn
from cloudgraft.kube.objects import Node
from cloudgraft.store.records import Change, Event, LearnedRecord, MachineRecord, State

_RECENT: Final = 20  # nodes per group to learn from, those of the latest machines


class TemplateLearner:
    """Learns the templates of one cloud's groups. It first collects the nodes of machines, then evaluates them."""

    def __init__(self, context: EngineContext) -> None:
        self.drift: dict[str, Sequence[Drift]] = {}  # by group
        self._context = context
        self._learned_templates = LearnedTemplates(context.fleet)
        self._latest: dict[str, list[tuple[float, str, Node]]] = {}  # by group; a heap, the oldest first
        self._is_same: dict[tuple[str, int], bool] = {}  # hundreds of machines of a group share their settings
        self._told: set[tuple[str, str]] = set()  # groups and differences that were reported

    def begin(self) -> None:
        """Starts a new collection."""
        self._latest, self._is_same = {}, {}

    def look_at(self, record: MachineRecord, observation: Observation) -> None:
        """Collects a ready node whose machine was made like a new one, if it is one of the latest.

        Not the node of an adopted machine, which others have made, and not a cordoned node: somebody works on it, and
        may have changed it.
        """
        group, node = self._context.fleet.groups.get(record.group), observation.node.current
        if group is None or node is None or not observation.node.joined or record.state is not State.RUNNING:
            return
        if not node.ready or node.deleting or node.unschedulable or record.is_adopted:
            return
        if not self._is_like_new(record, group):
            return
        latest = self._latest.setdefault(record.group, [])
        (heapq.heappush if len(latest) < _RECENT else heapq.heappushpop)(
            latest, (record.requested_at, record.name, node)
        )

    async def study(self) -> None:
        """Writes the learned facts, which are used from the next Refresh on (R4)."""
        groups = self._context.fleet.groups
        self.drift = {id_: found for id_, found in self.drift.items() if id_ in groups}
        learned: list[LearnedRecord] = []
        events: list[Event] = []
        for id_ in list(self._latest):
            group = groups.get(id_)
            if group is not None and group.is_configured:
                specimens = self._specimens(id_)
                learned_now = self._learn(group, specimens)
                learned += learned_now
                events += [] if learned_now else self._compared(group, specimens)
            await asyncio.sleep(0)
        if learned or events:
            await self._context.writer.write(lambda: self._taken_down(learned, events))

    def _taken_down(self, learned: Sequence[LearnedRecord], events: Sequence[Event]) -> Change:
        """The change to write, without facts of groups that were removed or changed while it waited for its turn."""
        groups = self._context.fleet.groups
        return Change(
            learned=[r for r in learned if r.group in groups and r.since == self._since(r.group)], events=events
        )

    def _since(self, group: str) -> float:
        known = self._context.fleet.learned.get(group)
        return known.since if known is not None else 0.0

    def _is_like_new(self, record: MachineRecord, group: Group) -> bool:
        key = record.group, id(record.settings)
        if key not in self._is_same:
            self._is_same[key] = same_settings(record.settings, group.spec.machine)
        return self._is_same[key] and record.requested_at >= self._since(record.group)

    def _specimens(self, group: str) -> list[Specimen]:
        found = []
        for _, name, node in sorted(self._latest[group], key=lambda one: (-one[0], one[1])):
            record = self._context.fleet.machines.get(name)
            ids = (record.machine_id, record.provider_id) if record is not None else ()
            found.append(Specimen(node=node, names=(node.name, node.uid, name, *ids)))
        return found

    def _learn(self, group: Group, specimens: Sequence[Specimen]) -> list[LearnedRecord]:
        spec, now = group.spec, self._context.clock.now()
        old = self._learned_templates.of(spec.id, spec.machine)
        facts = learn(old, specimens, now)
        if facts is None or facts is old:
            return []
        since = self._since(spec.id)
        return [LearnedRecord(group=spec.id, settings=spec.machine, since=since, facts=facts_to_json(facts))]

    def _compared(self, group: Group, specimens: Sequence[Specimen]) -> list[Event]:
        """Events for drift, once per difference. None while facts wait for the next Refresh: those may resolve it."""
        spec, now = group.spec, self._context.clock.now()
        if group.learned is not self._context.fleet.learned.get(spec.id):
            return []
        found = self.drift[spec.id] = find_drift(spec.template, specimens, now)
        news = [one for one in found if (spec.id, one.subject) not in self._told]
        self._told |= {(spec.id, one.subject) for one in news}
        return [
            happened("drift", now, f"{one.what}; {one.todo}", cloud=spec.cloud, group=spec.id, subject=one.subject)
            for one in news
        ]
