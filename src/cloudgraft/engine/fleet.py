"""Keeps everything the RPCs read in memory: built from the journal, changed only after the journal was written.

Look-ups are O(1). A group's list of instances is built once per change and is the same tuple until the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.states import COUNTED, SHOWN, is_moving, is_released
from cloudgraft.sdk.types import Instance, InstanceError, NodeGroup, NodeRef
from cloudgraft.store.records import (
    Change,
    Contents,
    DeclaredGroup,
    LearnedRecord,
    MachineRecord,
    PauseRecord,
    RequestRecord,
    Scope,
    State,
)

_REQUESTS_KEPT: Final = 86_400.0  # seconds, as the journal keeps them


class Watcher(Protocol):
    """Receives every change of the fleet. No method may take long."""

    def on_machine(self, record: MachineRecord) -> None:
        """A machine is new or has changed, or its id went to another machine."""

    def on_forgotten(self, record: MachineRecord) -> None:
        """A machine that has long been gone is no longer found by its ids."""

    def on_groups(self) -> None:
        """The published groups may have changed."""

    def on_reload(self) -> None:
        """Anything may have changed."""


@dataclass(slots=True)
class Group:
    """One node group and its machines."""

    spec: GroupSpec
    shown: NodeGroup  # as published at the last Refresh (R4)
    is_configured: bool = True  # False: no longer in the file, draining
    machines: dict[str, MachineRecord] = field(default_factory=dict)  # by name, without those that are gone
    target: int = 0
    learned: LearnedRecord | None = None  # the learned part of its template
    ids: Mapping[str, str] = field(default_factory=dict)  # of the whole fleet: id -> name of its machine
    _instances: tuple[Instance, ...] | None = None

    def instances(self) -> tuple[Instance, ...]:
        """The instances that the autoscaler sees (law 5), in an order that a restart does not change."""
        if self._instances is None:
            ordered = sorted(self.machines.values(), key=lambda record: (record.requested_at, record.name))
            self._instances = tuple(_instance(record, self.ids) for record in ordered)
        return self._instances

    def look_again(self) -> None:
        """Drops the cached instances: the id of a machine went to another one."""
        self._instances = None

    def put(self, old: MachineRecord | None, new: MachineRecord) -> None:
        """Replaces a machine's record."""
        self.target += (new.state in COUNTED) - (old is not None and old.state in COUNTED)
        if new.state is State.GONE:
            self.machines.pop(new.name, None)
        else:
            self.machines[new.name] = new
        self._instances = None


class Fleet:
    """All groups and machines of one cluster."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.machines: dict[str, MachineRecord] = {}  # by name, including those that are gone and not yet forgotten
        self.active: dict[str, dict[str, MachineRecord]] = {}  # by cloud and name, without those that are gone
        self.moving: dict[str, set[str]] = {}  # by cloud, names of machines whose change the next list will show
        self.released: dict[str, MachineRecord] = {}  # by name: gone for the engine, and still in their cloud
        self.adopted_clouds: set[str] = set()
        self.learned: dict[str, LearnedRecord] = {}  # by group
        self.pauses: dict[tuple[Scope, str], PauseRecord] = {}
        self._by_id: dict[str, str] = {}  # placeholder or providerID -> name
        self._by_machine_id: dict[tuple[str, str], str] = {}  # cloud and machine id -> name
        self.requests: dict[tuple[str, str], RequestRecord] = {}  # by caller and key, the oldest first
        self.declared: dict[str, DeclaredGroup] = {}  # by id
        self._listeners: dict[str, Callable[[MachineRecord], None]] = {}  # by cloud
        self._watchers: list[Watcher] = []

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, node: NodeRef) -> MachineRecord | None:
        """The machine behind a node: by its id, or by its name while its id is not known (R16, R22)."""
        name = self._by_id.get(node.provider_id) if node.provider_id else None
        if name is not None:
            return self.machines.get(name)
        record = self.machines.get(node.name)
        if record is None:
            name = self._by_id.get(node.name)
            return self.machines.get(name) if name is not None and not node.provider_id else None
        # A node of the same name with another id belongs to another machine.
        return record if not node.provider_id or not record.provider_id else None

    def by_machine_id(self, cloud: str, machine_id: str) -> MachineRecord | None:
        """The machine that has this id in its cloud."""
        name = self._by_machine_id.get((cloud, machine_id))
        return self.machines.get(name) if name is not None else None

    def in_cloud(self, cloud: str) -> Mapping[str, MachineRecord]:
        """The machines of one cloud that are not gone."""
        return self.active.get(cloud, {})

    def owner(self, provider_id: str) -> str:
        """The name of the machine that has this providerID now; empty for none."""
        return self._by_id.get(provider_id, "")

    def pause_of(self, group: str, cloud: str) -> PauseRecord | None:
        """The pause that holds a group, its own or its cloud's."""
        return self.pauses.get((Scope.GROUP, group)) or self.pauses.get((Scope.CLOUD, cloud))

    # -- changing ----------------------------------------------------------------------------------------------------

    def listen(self, cloud: str, listener: Callable[[MachineRecord], None]) -> None:
        """Calls ``listener`` with every changed record of that cloud."""
        self._listeners[cloud] = listener

    def unlisten(self, cloud: str) -> None:
        """Removes the cloud's listener."""
        self._listeners.pop(cloud, None)

    def watch(self, watcher: Watcher) -> None:
        """Adds a watcher of all changes."""
        self._watchers.append(watcher)

    def tell_of_groups(self) -> None:
        """Notifies the watchers that the published groups may have changed."""
        for watcher in self._watchers:
            watcher.on_groups()

    def take_group(self, spec: GroupSpec) -> None:
        """Adds or updates a group of the configuration."""
        group = self.groups.get(spec.id)
        if group is not None:
            group.spec, group.is_configured = spec, True
            return
        shown = NodeGroup(id=spec.id, min_size=spec.min_size, max_size=spec.max_size)
        group = self.groups[spec.id] = Group(spec, shown, ids=self._by_id)
        for record in self.machines.values():
            if record.group == spec.id:
                group.put(None, record)

    def load(self, contents: Contents, groups: Iterable[Group]) -> None:
        """Replaces everything by the journal's contents; ``groups`` come without machines."""
        self.groups = {group.spec.id: group for group in groups}
        self.moving = {}
        self.machines, self.active, self.released, self._by_id, self._by_machine_id = {}, {}, {}, {}, {}
        self.adopted_clouds = {cloud.name for cloud in contents.clouds}
        self.pauses = {(pause.scope, pause.name): pause for pause in contents.pauses}
        self.learned = {record.group: record for record in contents.learned}
        for group in self.groups.values():
            group.ids = self._by_id
        # Where a cloud reuses ids, an id belongs to the machine that exists, not to one that is gone.
        for record in sorted(contents.machines, key=_presence_order):
            self._put(record)
        ordered = sorted(contents.requests, key=lambda request: request.at)
        self.requests = {(request.caller, request.key): request for request in ordered}
        self.declared = {group.id: group for group in contents.declared}
        for watcher in self._watchers:
            watcher.on_reload()

    def apply(self, change: Change) -> None:
        """Applies a change that was just written to the journal."""
        for record in change.machines:
            self._put(record)
        self.adopted_clouds.update(cloud.name for cloud in change.clouds)
        for pause in change.pauses:
            self.pauses[pause.scope, pause.name] = pause
        for key in change.resumed:
            self.pauses.pop(key, None)
        for group in change.removed_groups:
            self.groups.pop(group, None)
            self.learned.pop(group, None)
        self.learned.update((record.group, record) for record in change.learned)
        self._take_requests(change)
        for watcher in self._watchers:
            for record in change.machines:
                watcher.on_machine(record)
        for record in change.machines:
            listener = self._listeners.get(record.cloud)
            if listener is not None:
                listener(record)

    def _take_requests(self, change: Change) -> None:
        for key in change.removed_requests:
            self.requests.pop(key, None)
        for request in change.requests:
            self.requests[request.caller, request.key] = request
            while (oldest := next(iter(self.requests.values()))).at < request.at - _REQUESTS_KEPT:
                del self.requests[oldest.caller, oldest.key]
        for id_ in change.undeclared:
            self.declared.pop(id_, None)
        self.declared.update((group.id, group) for group in change.declared)

    def forget(self, gone_before: float) -> None:
        """Drops machines that were gone before that time, as the journal does, except released ones."""
        gone = (r for r in self.machines.values() if r.gone_at is not None and r.gone_at < gone_before)
        old = [r for r in gone if not is_released(r)]
        for record in old:
            del self.machines[record.name]
            for key in (record.placeholder, record.provider_id):
                if self._by_id.get(key) == record.name:
                    del self._by_id[key]
            if self._by_machine_id.get((record.cloud, record.machine_id)) == record.name:
                del self._by_machine_id[record.cloud, record.machine_id]
            for watcher in self._watchers:
                watcher.on_forgotten(record)

    def _put(self, record: MachineRecord) -> None:
        old = self.machines.get(record.name)
        if old is not None and old.cloud != record.cloud:
            self._leave(old)
        self.machines[record.name] = record
        self._by_id[record.placeholder] = record.name
        self._index(old, record)
        active = self.active.setdefault(record.cloud, {})
        if record.state is State.GONE:
            active.pop(record.name, None)
        else:
            active[record.name] = record
        moving = self.moving.setdefault(record.cloud, set())
        (moving.add if is_moving(record) else moving.discard)(record.name)
        if is_released(record):
            self.released[record.name] = record
        else:
            self.released.pop(record.name, None)
        group = self.groups.get(record.group)
        if group is not None:
            group.put(old, record)

    def _leave(self, old: MachineRecord) -> None:
        """Removes a machine from the cloud of its old record: the cloud was renamed."""
        self.active.get(old.cloud, {}).pop(old.name, None)
        self.moving.get(old.cloud, set()).discard(old.name)
        if self._by_machine_id.get((old.cloud, old.machine_id)) == old.name:
            del self._by_machine_id[old.cloud, old.machine_id]

    def _index(self, old: MachineRecord | None, record: MachineRecord) -> None:
        """Indexes a record's ids. An id belongs to the machine that got it last, while that one exists."""
        if record.provider_id:
            rival = self._rival(self._by_id.get(record.provider_id), record)
            if rival is None or old is None or old.provider_id != record.provider_id:
                self._by_id[record.provider_id] = record.name
                if rival is not None and rival.group in self.groups:
                    self.groups[rival.group].look_again()
                    for watcher in self._watchers:
                        watcher.on_machine(rival)
        if record.machine_id:
            key = record.cloud, record.machine_id
            rival = self._rival(self._by_machine_id.get(key), record)
            if rival is None or old is None or (old.cloud, old.machine_id) != key:
                self._by_machine_id[key] = record.name

    def _rival(self, name: str | None, record: MachineRecord) -> MachineRecord | None:
        """Another existing machine that shares an id with this one."""
        holder = self.machines.get(name) if name not in (None, record.name) else None
        return None if holder is None or holder.state is State.GONE else holder


def _presence_order(record: MachineRecord) -> tuple[int, float]:
    """Sorts gone machines first, by time, then those being deleted, then the others."""
    rank = {State.GONE: 0, State.DELETING: 1}.get(record.state, 2)
    return rank, record.gone_at or 0.0


def _instance(record: MachineRecord, ids: Mapping[str, str]) -> Instance:
    error = record.error if record.state is State.FAILED else None
    is_known = record.provider_id and ids.get(record.provider_id) == record.name  # else the id is another machine's now
    return Instance(
        id=record.provider_id if is_known else record.placeholder,
        state=SHOWN[record.state],
        error=InstanceError(code=error.code, message=error.message, error_class=error.error_class) if error else None,
    )
