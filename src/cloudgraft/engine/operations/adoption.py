"""Adopts machines into the journal: those of a cluster that already runs, and orphans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.new_records import about
from cloudgraft.engine.operations.bulk_operations import Item, Result, carry_out, check_usable, item_of, why_no_orphan
from cloudgraft.engine.operations.marking import put_marks
from cloudgraft.engine.ownership.orphans import Orphan, OrphanKind
from cloudgraft.engine.ownership.rules import Owner, Refusal, adopted, known_as, trusted
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.unknown_names import unknown_group
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.store.records import Change, Event, MachineRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pick:
    """One machine to adopt. Without a group: a machine of the journal that lost its marks."""

    machine_id: str
    cloud: str = ""
    group: str = ""
    refused: str = ""


async def adopt(
    engine: Engine, group: str, machine_ids: Sequence[str] = (), *, prefix: str = "", is_dry_run: bool = True
) -> Result:
    """Adopts machines of the group's cloud into the group, by their ids or by a prefix of their names.

    They need no marks. They are marked as ours where their driver can do that; else their ids with their creation times
    are the proof. From then on the autoscaler may delete them.
    """
    engine.check_leader()
    if bool(machine_ids) == bool(prefix):
        raise InvalidArgumentError("say which machines: either their ids, or the beginning of their names")
    into = _open_group(engine, group)
    worker = _worker(engine, into.spec.cloud)
    ids = list(dict.fromkeys(machine_ids)) or _named(engine, worker, prefix)
    picks = [_Pick(machine_id=id_, cloud=worker.name, group=group) for id_ in ids]
    items = await _carried_out(engine, picks, is_dry_run=is_dry_run)
    return Result(is_dry_run=is_dry_run, items=items, notes=_notes(engine, into, items, is_dry_run=is_dry_run))


async def adopt_orphans(
    engine: Engine,
    machine_ids: Sequence[str] = (),
    *,
    everything: bool = False,
    group: str = "",
    cloud: str = "",
    is_dry_run: bool = True,
) -> Result:
    """Adopts orphans, each into the group that it was created for, or into ``group``.

    ``everything`` selects all that have our marks and were not released. A machine of the journal that lost its marks
    can be named too: it counts as ours from then on. So can one that was adopted, disappeared, and came back.
    """
    engine.check_leader()
    if bool(machine_ids) == everything:
        raise InvalidArgumentError("say which machines: either their ids, or all")
    if group:
        _open_group(engine, group)
    for worker in engine.workers.values():
        worker.observer.review()
    if everything:
        picks = _all_marked(engine, group, cloud)
    else:
        picks = [_pick(engine, id_, group, cloud) for id_ in dict.fromkeys(machine_ids)]
    return Result(is_dry_run=is_dry_run, items=await _carried_out(engine, picks, is_dry_run=is_dry_run))


async def _carried_out(engine: Engine, picks: Sequence[_Pick], *, is_dry_run: bool) -> Sequence[Item]:
    items = await carry_out(engine, picks, lambda batch: _planned(engine, batch), is_dry_run=is_dry_run)
    if is_dry_run:
        return items
    for item in items:
        if not item.refused:
            engine.workers[item.cloud].observer.trust(item.name)
    return await put_marks(engine, items)


# -- selection ---------------------------------------------------------------------------------------------------------


def _open_group(engine: Engine, name: str) -> Group:
    group = engine.fleet.groups.get(name)
    if group is None:
        raise unknown_group(engine, name)
    if not group.is_configured:
        raise PreconditionError(f"node group {name!r} is no longer configured; it only shrinks")
    return group


def _worker(engine: Engine, cloud: str) -> Worker:
    worker = engine.workers.get(cloud)
    if worker is None:
        raise PreconditionError(f"cloud {cloud!r} is not configured")
    check_usable(worker)
    return worker


def _named(engine: Engine, worker: Worker, prefix: str) -> list[str]:
    """Ids of machines whose names have the prefix, without those in the journal."""
    listing = worker.observer.listing
    machines: Sequence[Machine] = listing.machines if listing is not None else ()
    known = {record.machine_id for record in engine.fleet.in_cloud(worker.name).values()}
    return [m.machine_id for m in machines if m.name.startswith(prefix) and m.machine_id not in known]


def _all_marked(engine: Engine, group: str, cloud: str) -> list[_Pick]:
    return [
        _orphan_pick(orphan, group)
        for worker in engine.workers.values()
        if cloud in ("", worker.name)
        for orphan in worker.observer.orphans
        if orphan.kind is OrphanKind.UNKNOWN
    ]


def _pick(engine: Engine, machine_id: str, group: str, cloud: str) -> _Pick:
    orphans = [
        orphan
        for worker in engine.workers.values()
        if cloud in ("", worker.name)
        for orphan in worker.observer.orphans
        if orphan.machine.machine_id == machine_id
    ]
    clouds = {orphan.cloud for orphan in orphans}
    clouds |= {name for name in engine.workers if cloud in ("", name) and _unproven(engine, name, machine_id)}
    if len(clouds) != 1:
        several = f"several clouds have such a machine ({', '.join(sorted(clouds))}); say which with --cloud"
        return _Pick(machine_id=machine_id, refused=several if clouds else why_no_orphan(engine, machine_id))
    return _orphan_pick(orphans[0], group) if orphans else _Pick(machine_id=machine_id, cloud=clouds.pop())


def _orphan_pick(orphan: Orphan, group: str) -> _Pick:
    chosen = group or orphan.group or ""
    why = "" if chosen else "it cannot be told which group it was made for; say it with --group"
    return _Pick(machine_id=orphan.machine.machine_id, cloud=orphan.cloud, group=chosen, refused=why)


def _unproven(engine: Engine, cloud: str, machine_id: str) -> MachineRecord | None:
    """The record that this machine has the id or name of, without our marks."""
    observer = engine.workers[cloud].observer
    for record in engine.fleet.in_cloud(cloud).values():
        observation = observer.peek(record.name)
        if observation is None or observation.listed.is_ours:
            continue
        seen = observation.listed.machine or observation.listed.unproven
        if seen is not None and seen.machine_id == machine_id:
            return record
    return None


# -- planning ----------------------------------------------------------------------------------------------------------


def _planned(engine: Engine, picks: Sequence[_Pick]) -> tuple[list[Item], Change]:
    items: list[Item] = []
    records: dict[str, MachineRecord] = {}
    events: list[Event] = []
    now = engine.clock.now()
    for pick in picks:
        result, seen = _judged(engine, pick, records)
        if isinstance(result, Refusal):
            items.append(_refused(pick, seen, result.why))
            continue
        records[result.name] = result
        items.append(item_of(result))
        if pick.group:
            events.append(about(result, now, "an operator took it into the journal"))
        message = f"an operator says that machine {result.machine_id} is ours"
        events.append(about(result, now, message, kind="adopted", machine_id=result.machine_id))
    return items, Change(machines=tuple(records.values()), events=events)


def _judged(
    engine: Engine, pick: _Pick, taken: dict[str, MachineRecord]
) -> tuple[MachineRecord | Refusal, Machine | None]:
    if pick.refused:
        return Refusal(pick.refused), None
    worker = _worker(engine, pick.cloud)
    listing = worker.observer.listing
    machine = listing.by_id.get(pick.machine_id) if listing is not None else None
    if machine is None:
        return Refusal(f"the latest list of cloud {pick.cloud} has no machine with this id"), None
    if pick.group:
        return _into_group(engine, worker, pick.group, machine, taken), machine
    record = _unproven(engine, pick.cloud, pick.machine_id)
    if record is None:
        return Refusal("no orphan has this id"), machine
    return trusted(record, worker.observer.peek(record.name), engine.identity), machine


def _into_group(
    engine: Engine, worker: Worker, name: str, machine: Machine, taken: dict[str, MachineRecord]
) -> MachineRecord | Refusal:
    group = engine.fleet.groups.get(name)
    if group is None or group.spec.cloud != worker.name:
        return Refusal(f"there is no node group {name!r} in cloud {worker.name}; say another with --group")
    if not group.is_configured:
        return Refusal(f"node group {name!r} is no longer configured; say another with --group")
    known = known_as(machine, worker.name, engine.fleet)
    observation = worker.observer.peek(known.name) if known is not None else None
    owner = Owner(fleet=engine.fleet, identity=engine.identity, ownership=worker.driver.traits.ownership)
    return adopted(machine, group, owner, engine.clock.now(), observation=observation, taken=taken)


def _refused(pick: _Pick, seen: Machine | None, why: str) -> Item:
    return Item(
        machine_id=pick.machine_id,
        cloud=pick.cloud,
        group=pick.group,
        name=seen.name if seen else "",
        provider_id=(seen.provider_id or "") if seen else "",
        refused=why,
    )


def _notes(engine: Engine, group: Group, items: Sequence[Item], *, is_dry_run: bool) -> list[str]:
    size = group.target + (sum(not item.refused for item in items) if is_dry_run else 0)
    spec, verb = group.spec, "would have" if is_dry_run else "has"
    notes = []
    if size > spec.max_size:
        notes.append(f"group {spec.id} {verb} {size} machines; its maxSize is {spec.max_size}")
    if engine.fleet.pause_of(spec.id, spec.cloud) is not None:
        notes.append(f"group {spec.id} is paused")
    return notes
