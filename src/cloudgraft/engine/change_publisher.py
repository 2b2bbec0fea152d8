"""Publishes changes of the fleet, by the subjects that answers depend on.

| subject | what depends on it |
|---|---|
| ``groups`` | the list of groups |
| ``group/ID`` | one group's bounds, template and options, and whether it is listed |
| ``machines/ID`` | the target and the instances of one group |
| ``node/ID`` | the group of the node with this providerID, placeholder or name |
"""

from __future__ import annotations

from typing import Final

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.resolution import Groups
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.sdk.provider import Question, ReadyReplies
from cloudgraft.sdk.types import NodeGroup, NodeRef
from cloudgraft.store.records import MachineRecord

_GROUPS: Final = "groups"
_OF_MACHINES: Final = frozenset({"target_size", "instances"})


def of_node(node: NodeRef, group: str) -> list[str]:
    """Subjects that the group of a node depends on; ``group`` is the group of the machine found for it, if any."""
    subjects = [f"node/{key}" for key in (node.provider_id, node.name) if key]
    return [*subjects, f"group/{group}"] if group else subjects


def of_question(question: Question) -> list[str]:
    """Subjects that the answer to a question about groups depends on."""
    if question.method == "node_groups":
        return [_GROUPS]
    subject = f"group/{question.group}"
    return [subject, f"machines/{question.group}"] if question.method in _OF_MACHINES else [subject]


class ChangePublisher:
    """Watches one fleet and publishes every change to one set of ready replies."""

    def __init__(self, fleet: Fleet, groups: Groups, replies: ReadyReplies) -> None:
        self._fleet = fleet
        self._groups = groups
        self._replies = replies
        self._listed: tuple[NodeGroup, ...] = ()
        self._told: dict[str, tuple[NodeGroup, GroupSpec, bool]] = {}
        self.on_reload()

    def on_machine(self, record: MachineRecord) -> None:
        """The machine is found by its ids from now on, and counts in its new state."""
        self._replies.publish([f"machines/{record.group}", *_nodes(record)])

    def on_forgotten(self, record: MachineRecord) -> None:
        """Its ids may lead to another machine."""
        self._replies.publish(_nodes(record))

    def on_groups(self) -> None:
        """Publishes only groups that changed: a Refresh that changes nothing drops no reply."""
        told = self._present()
        changed = [id_ for id_ in told.keys() | self._told.keys() if told.get(id_) != self._told.get(id_)]
        subjects = [subject for id_ in changed for subject in (f"group/{id_}", f"machines/{id_}")]
        if self._groups.shown != self._listed:
            subjects.append(_GROUPS)
        self._listed, self._told = self._groups.shown, told
        if subjects:
            self._replies.publish(subjects)

    def on_reload(self) -> None:
        """Drops every reply: anything may have changed."""
        self._listed, self._told = self._groups.shown, self._present()
        self._replies.clear()

    def _present(self) -> dict[str, tuple[NodeGroup, GroupSpec, bool]]:
        groups = self._fleet.groups.items()
        return {id_: (group.shown, group.spec, id_ in self._groups.shown_ids) for id_, group in groups}


def _nodes(record: MachineRecord) -> list[str]:
    """All subjects under which the autoscaler may ask for a node of this machine."""
    return [f"node/{key}" for key in (record.provider_id, record.placeholder, record.name) if key]
