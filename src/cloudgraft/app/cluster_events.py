"""Turns the engine's warnings into Kubernetes Events about nodes and about cloudgraft's own Deployment."""

from __future__ import annotations

import logging
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.machines.decide import JOIN_DEADLINE
from cloudgraft.engine.new_records import level_of
from cloudgraft.kube.event_recorder import EventRecorder, Notice
from cloudgraft.kube.objects import Node
from cloudgraft.store.records import Event, State

# Kinds whose name says too little without its table; the others are written in CamelCase.
_REASONS: Final = {"guard": "GuardHit", "orphan": "OrphanFound", "repair": "MachineReplaced", "drift": "TemplateDrift"}


class ClusterEvents:
    """Records the engine's warnings and errors. Subscribe :meth:`tell` to the writer."""

    def __init__(self, engine: Engine, recorder: EventRecorder) -> None:
        self._engine = engine
        self._recorder = recorder

    def tell(self, event: Event) -> None:
        """Records an event about the machine's node, if it has one, else about the Deployment."""
        if level_of(event) < logging.WARNING:
            return
        node = self._node(event.machine)
        subject = " ".join(f"{key} {value}" for key, value in _subject(event, has_node=node is not None) if value)
        message = f"{subject}: {event.message}" if subject else event.message
        self._recorder.record(Notice(reason=self._reason(event), message=message, node=node))

    def _reason(self, event: Event) -> str:
        if event.state is State.FAILED:
            record = self._engine.fleet.machines.get(event.machine)
            is_join = record is not None and record.error is not None and record.error.code == JOIN_DEADLINE
            return "JoinFailed" if is_join else "MachineFailed"
        return _REASONS.get(event.kind) or "".join(word.capitalize() for word in event.kind.split("_"))

    def _node(self, machine: str) -> Node | None:
        cluster = self._engine.nodes.cluster
        found = cluster.joined(machine) if machine and cluster is not None else None
        return found.node if found is not None else None


def _subject(event: Event, *, has_node: bool) -> list[tuple[str, str]]:
    if event.machine and not has_node:
        return [("group", event.group), ("machine", event.machine)]
    return [("group", event.group)] if event.group else [("cloud", event.cloud)]
