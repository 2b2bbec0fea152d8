"""Keeps a front's view of a node manager's groups, updated by snapshots. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cloudgraft.engine.groups.prices import ReferencePrice
from cloudgraft.nodemanager.snapshot import GroupSnapshot, Known, Revision, Snapshot
from cloudgraft.sdk.types import Instance, NodeGroup, NodeRef


@dataclass(slots=True)
class View:
    """One group from the last snapshot, and its machines from all snapshots."""

    last: GroupSnapshot
    revision: Revision
    machines: dict[str, Known]  # by name, including those that are gone and remembered
    _instances: tuple[Instance, ...] | None = None

    def instances(self) -> tuple[Instance, ...]:
        """The autoscaler's list: the identical tuple until something changes."""
        if self._instances is None:
            self._instances = tuple(known.instance() for known in self.machines.values() if not known.is_gone)
        return self._instances


class Views:
    """All groups, and the group of each node."""

    def __init__(self) -> None:
        self.revision: Revision | None = None
        self.reference: ReferencePrice | None = None
        self.gpu_label = ""
        self.gpu_types: Collection[str] = ()
        self.views: dict[str, View] = {}
        self.shown: tuple[NodeGroup, ...] = ()  # what the autoscaler last got (R4)
        self._shown: dict[str, NodeGroup] = {}
        self._order: Sequence[str] = ()
        self._ids: dict[str, tuple[str, Known]] = {}  # by any id: the group's id and the machine
        self._names: dict[str, tuple[str, Known]] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    def group_of(self, node: NodeRef) -> str | None:
        """The group of a node: by its id, or by its name while its id is unknown (R16, R22)."""
        found = self._ids.get(node.provider_id) if node.provider_id else None
        if found is None:
            found = self._names.get(node.name)
            if found is None:
                found = self._ids.get(node.name) if not node.provider_id else None
            elif node.provider_id and found[1].has_provider_id:
                return None  # a node of the same name with another id is another machine's
        return found[0] if found is not None else None

    def shown_group_of(self, node: NodeRef) -> NodeGroup | None:
        """The group of a node, if the autoscaler knows the group (R18)."""
        id_ = self.group_of(node)
        return self._shown.get(id_) if id_ is not None else None

    # -- updates -------------------------------------------------------------------------------------------------------

    def take(self, snapshot: Snapshot) -> None:
        """Applies a snapshot. Groups that are missing in it stay until the next :meth:`publish`.

        Ignores one that is older than what is known. After one that does not fit, the next read asks for everything.
        """
        fits = [self.take_group(snapshot.revision.manager, group) for group in snapshot.groups]
        known = self.revision
        if known is not None and known.manager == snapshot.revision.manager and known.number > snapshot.revision.number:
            return
        self.revision = snapshot.revision if all(fits) else None
        self.reference, self._order = snapshot.reference, snapshot.group_ids
        self.gpu_label, self.gpu_types = snapshot.gpu_label, tuple(snapshot.gpu_types)

    def take_group(self, manager: str, snapshot: GroupSnapshot) -> bool:
        """Applies one group, unless something newer is known; False when it does not fit what is known."""
        id_, revision = snapshot.group.id, Revision(manager, snapshot.number)
        old = self.views.get(id_)
        is_same = old is not None and old.revision.manager == manager
        if old is not None and is_same and old.revision.number > snapshot.number:
            return True  # the response to a change overtook this one, which is older
        if not snapshot.is_complete and not is_same:
            return False
        machines = {} if old is None or snapshot.is_complete else old.machines
        if old is not None and snapshot.is_complete:
            self._drop(id_, old.machines.values())
        self.views[id_] = View(snapshot, revision, machines)
        for known in snapshot.machines:
            self._put(id_, machines, known)
        return True

    def publish(self) -> None:
        """Publishes the current groups to the autoscaler. Removed groups disappear only here (R4)."""
        for id_ in self.views.keys() - set(self._order):
            self._drop(id_, self.views.pop(id_).machines.values())
        self.shown = tuple(self.views[id_].last.group for id_ in self._order if id_ in self.views)
        self._shown = {group.id: group for group in self.shown}

    def _put(self, group: str, machines: dict[str, Known], known: Known) -> None:
        old = machines.get(known.name)
        if old is not None:
            self._drop(group, (old,))
        if known.is_forgotten:
            machines.pop(known.name, None)
            return
        machines[known.name] = known
        entry = (group, known)
        self._names[known.name] = self._ids[known.placeholder] = self._ids[known.id] = entry

    def _drop(self, group: str, machines: Iterable[Known]) -> None:
        """Removes a machine's ids, except those that belong to another machine by now."""
        for known in machines:
            for id_ in (known.id, known.placeholder):
                held = self._ids.get(id_)
                if held is not None and held[0] == group and held[1].name == known.name:
                    del self._ids[id_]
            named = self._names.get(known.name)
            if named is not None and named[0] == group:
                del self._names[known.name]
