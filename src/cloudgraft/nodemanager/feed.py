"""Publishes an engine's changes to fronts: everything since a revision, and a wake-up when something changes.

A changed machine costs a few dictionary operations here. A snapshot is built only when a front asks, of what changed
since the front's last one, and in slices: no other call waits for it (law 1).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.states import SHOWN
from cloudgraft.nodemanager.snapshot import GROUP, KNOWN, SNAPSHOT, GroupSnapshot, Known, Revision, Snapshot, forgotten
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.errors import RateLimitedError
from cloudgraft.sdk.types import InstanceError, InstanceState, NodeGroup
from cloudgraft.store.records import MachineRecord, State

_NO_REVISION: Final = Revision("", 0)
_SLICE: Final = 250  # machines that are written before other tasks run
_FORGOTTEN: Final = 1000  # machines of a group whose removal fronts can learn one by one
_MOST_WAITING: Final = 200  # requests that may wait for changes at a time
_BUSY: Final = 5.0  # seconds after which to retry when there are too many


@dataclass(slots=True)
class _Track:
    """The changes of one group, and their revisions."""

    shown: NodeGroup
    spec: GroupSpec
    changed: int  # the latest change in it
    complete_after: int  # a front with an older revision gets everything
    machines: dict[str, int] = field(default_factory=dict)  # by name: its latest change, in order of change
    gone: dict[str, MachineRecord] = field(default_factory=dict)  # whose nodes may still be there (R24), oldest first
    forgotten: dict[str, int] = field(default_factory=dict)  # whose nodes are gone, and since which revision


class Feed:
    """Follows one engine. Revisions belong to this process: after a restart a front gets everything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._manager = secrets.token_hex(4)
        self._number = 1
        self._tracks: dict[str, _Track] = {}
        self._general = Snapshot(revision=_NO_REVISION)  # the part of a snapshot that belongs to no group
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_closed = False
        engine.fleet.watch(self)
        self.on_reload()

    @property
    def revision(self) -> Revision:
        """The current revision."""
        return Revision(self._manager, self._number)

    # -- changes -------------------------------------------------------------------------------------------------------

    def on_machine(self, record: MachineRecord) -> None:
        """Records that a machine has changed."""
        track = self._tracks.get(record.group)
        if track is None:  # its group will be published with all machines
            return
        if record.state is State.GONE and self._engine.is_forgotten(record):  # an operator released it
            self._forget(track, record.name)
            return
        track.machines.pop(record.name, None)
        track.machines[record.name] = track.changed = self._next()
        track.gone.pop(record.name, None)
        track.forgotten.pop(record.name, None)
        if record.state is State.GONE:
            track.gone[record.name] = record

    def on_forgotten(self, record: MachineRecord) -> None:
        """Does nothing: a front forgets by itself."""

    def on_groups(self) -> None:
        """Compares the public view of groups; most of the time it is unchanged."""
        groups = self._engine.fleet.groups
        shown = [groups[group.id] for group in self._engine.groups.shown if group.id in groups]
        for group in shown:
            track = self._tracks.get(group.spec.id)
            if track is None:
                self._tracks[group.spec.id] = self._track(group)
            elif track.shown != group.shown or (track.spec is not group.spec and track.spec != group.spec):
                track.shown, track.spec, track.changed = group.shown, group.spec, self._next()
        general = self._now(shown)
        if general != self._general:
            self._general = general
            self._tracks = {id_: self._tracks[id_] for id_ in general.group_ids}
            self._next()

    def on_reload(self) -> None:
        """Marks everything as changed."""
        self._tracks = {}
        self._next()
        self.on_groups()

    def _now(self, shown: Sequence[Group]) -> Snapshot:
        label = self._engine.settings.gpu_label
        types = {group.spec.template.labels[label] for group in shown if label in group.spec.template.labels}
        return Snapshot(
            revision=_NO_REVISION,
            group_ids=tuple(group.spec.id for group in shown),
            reference=self._engine.groups.reference_price,
            gpu_label=label,
            gpu_types=tuple(sorted(types)),
        )

    def _track(self, group: Group) -> _Track:
        number, id_ = self._next(), group.spec.id
        gone = [r for r in self._engine.fleet.machines.values() if r.group == id_ and r.state is State.GONE]
        gone.sort(key=lambda record: record.gone_at or 0.0)
        return _Track(
            shown=group.shown,
            spec=group.spec,
            changed=number,
            complete_after=number,
            gone={record.name: record for record in gone if not self._engine.is_forgotten(record)},
        )

    def _next(self) -> int:
        self._number += 1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        return self._number

    def wake(self) -> None:
        """Wakes all waiting requests: they must check again whether this process leads."""
        self._next()

    def close(self) -> None:
        """Wakes all waiting requests for good: the process is ending."""
        self._is_closed = True
        self._next()

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def changed(self, since: Revision | None, seconds: float) -> bool:
        """Waits at most this long for anything newer than the revision; False when there was none."""
        self.sweep()
        if since != self.revision or self._is_closed:
            return True
        if seconds <= 0:
            return False  # too many requests are waiting: do not wait
        if len(self._waiting) >= _MOST_WAITING:
            raise RateLimitedError(f"{_MOST_WAITING} requests wait for news already", retry_after=_BUSY)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
        return True

    async def snapshot(self, since: Revision | None = None) -> tuple[bytes, Revision]:
        """Everything, or what is newer than the revision, as JSON; and the revision of the result."""
        self.sweep()
        known, number, general = self._since(since), self._number, self._general
        entries = [
            await self._entry(id_, known)
            for id_ in general.group_ids
            if id_ in self._tracks and self._tracks[id_].changed > known
        ]
        snapshot = replace(general, revision=Revision(self._manager, number))
        return _joined(SNAPSHOT.write(snapshot), "groups", entries), snapshot.revision

    async def group(self, id_: str, since: Revision | None) -> bytes | None:
        """What is newer than the revision in one group, as JSON; None when the group is gone."""
        if id_ not in self._tracks or id_ not in self._engine.fleet.groups:
            return None
        return (await self._entry(id_, self._since(since))).encode()

    def _since(self, since: Revision | None) -> int:
        return since.number if since is not None and since.manager == self._manager else 0

    async def _entry(self, id_: str, known: int) -> str:
        """One group. Consistent: everything is collected before the first pause."""
        track, group = self._tracks[id_], self._engine.fleet.groups.get(id_)
        is_complete = known < track.complete_after or group is None
        published = list(_everything(group, track) if is_complete else self._newer(track, known))
        snapshot = GroupSnapshot(
            group=track.shown,
            number=self._number,
            target=group.target if group is not None else 0,
            template=track.spec.template,
            options=track.spec.options,
            price=track.spec.price,
            is_complete=is_complete,
        )
        ids: Mapping[str, str] = group.ids if group is not None else {}
        pieces = [
            _dumps([KNOWN.write(_known(each, ids)) for each in some])[1:-1]
            async for some in in_slices(published, _SLICE)
        ]
        await asyncio.sleep(0)  # also after a group without machines: there may be many
        return _joined(GROUP.write(snapshot), "machines", pieces).decode()

    def _newer(self, track: _Track, known: int) -> Iterator[MachineRecord | str]:
        machines = self._engine.fleet.machines
        for name, number in reversed(track.machines.items()):
            if number <= known:
                return
            yield name if name in track.forgotten or name not in machines else machines[name]

    def sweep(self) -> None:
        """Drops machines whose nodes need not be remembered any more. Mostly checks one of each group."""
        for track in self._tracks.values():
            while track.gone:
                name, record = next(iter(track.gone.items()))
                if name in self._engine.fleet.machines and not self._engine.is_forgotten(record):
                    break
                self._forget(track, name)

    def _forget(self, track: _Track, name: str) -> None:
        """Records a removal. A front that has not asked for long gets the whole group."""
        track.gone.pop(name, None)
        track.machines.pop(name, None)
        track.machines[name] = track.forgotten[name] = track.changed = self._next()
        if len(track.forgotten) > _FORGOTTEN:
            oldest = next(iter(track.forgotten))
            track.complete_after = max(track.complete_after, track.forgotten.pop(oldest))
            track.machines.pop(oldest, None)


def _everything(group: Group | None, track: _Track) -> Iterable[MachineRecord]:
    there = group.machines.values() if group is not None else ()
    ordered = sorted(there, key=lambda record: (record.requested_at, record.name))  # in the engine's order
    return [*track.gone.values(), *ordered]


def _known(each: MachineRecord | str, ids: Mapping[str, str]) -> Known:
    return forgotten(each) if isinstance(each, str) else known_of(each, ids)


def known_of(record: MachineRecord, ids: Mapping[str, str]) -> Known:
    """A front's view of a machine; ``ids`` says which machine an id belongs to now."""
    is_owner = bool(record.provider_id) and ids.get(record.provider_id) == record.name
    is_gone, error = record.state is State.GONE, record.error if record.state is State.FAILED else None
    return Known(
        name=record.name,
        id=record.provider_id if is_owner else record.placeholder,
        placeholder=record.placeholder,
        state=InstanceState.DELETING if is_gone else SHOWN[record.state],
        error=InstanceError(code=error.code, message=error.message, error_class=error.error_class) if error else None,
        provider_id="" if is_owner else record.provider_id,
        is_gone=is_gone,
    )


def _joined(head: dict[str, object], key: str, items: Sequence[str]) -> bytes:
    """Appends a list to the object; the items are JSON already."""
    return f'{_dumps(head)[:-1]},"{key}":[{",".join(items)}]}}'.encode()


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
